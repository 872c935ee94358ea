"""Broadcast: every rank ends with the root's buffer."""
