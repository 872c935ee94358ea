"""Ranks that share the positions of every sequence: layouts, exchanges, and the replica that techniques build on."""
