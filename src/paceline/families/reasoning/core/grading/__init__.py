"""Grading what was read: whether it is the truth, and which answers are the same."""
