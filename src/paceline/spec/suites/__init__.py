"""Suites: their grammar, their files, and what may be wrong in one."""
