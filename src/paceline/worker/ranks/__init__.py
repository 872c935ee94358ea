"""One rank of a launch: how it begins, what it loads, and what it shares with the family that measures."""
