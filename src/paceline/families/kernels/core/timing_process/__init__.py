"""The process apart in which one technique computes and is timed, and the judge's handle to it (``client``)."""
