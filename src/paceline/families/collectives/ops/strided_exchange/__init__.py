"""The exchange of a strided block: it is packed, sent to the next rank, and unpacked there."""
