"""Layers whose tokens go to few of many experts: routing, what ranks may do with it, traces, and placements."""
