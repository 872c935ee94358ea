"""Layers whose tokens go to few of many experts: routing, exchanges, placements, and what ranks hold."""
