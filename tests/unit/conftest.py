"""Unit tests draw the same examples on every machine, and few enough that all of them together stay quick."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")
