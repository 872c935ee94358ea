"""What a log says of a server: its capacity, its fairness, and whether the client was fast enough to tell."""
