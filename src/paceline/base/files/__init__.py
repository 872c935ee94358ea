"""Files that two programs share: events, job folders, plain data, code, and which of them were read before."""
