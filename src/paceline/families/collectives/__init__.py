"""Collective communication: operations over ranks, what each rank must end with, and what it costs."""
