"""Ranks in a mesh: some share matrices, some layers, some sequences."""
