"""Layouts of families, a module each, by the families' names."""
