"""Measurement night after night: what is due, what got worse since, and where the result is put."""
