"""Programs: commands that are timed, and a technique that is one of them."""
