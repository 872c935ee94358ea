"""What runs have decided in a few lines: for a terminal, and for a pull request."""
