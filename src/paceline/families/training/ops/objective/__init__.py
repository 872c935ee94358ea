"""``objective``: nodes optimise an objective whose optimum is known, by messages in virtual time. Free of torch."""
