"""Training that goes on when a peer is killed in the middle of a step, and takes up one that comes."""
