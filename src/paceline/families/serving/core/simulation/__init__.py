"""Serving in virtual time: the engine's own bookkeeping, with costs of steps measured on a real engine."""
