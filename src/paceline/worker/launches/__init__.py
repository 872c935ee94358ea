"""Launches as they are watched from outside: which comes next, its attempts, and who is to blame for a failure."""
