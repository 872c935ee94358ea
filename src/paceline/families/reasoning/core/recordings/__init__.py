"""What models decoded, kept: archives and files of traces, and models that answer from them."""
