"""``toy``: ranks share the sequences of a step, and nothing else is looked at."""
