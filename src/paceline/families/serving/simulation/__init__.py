"""Serving in virtual time: the engine's own bookkeeping, with the costs of steps that were measured on a real engine."""
