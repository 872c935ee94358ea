"""Paceline: reproducible benchmarks for parallel and distributed machine-learning techniques."""

from paceline.base.technique import technique

__version__ = "0.1.0"
__all__ = ["__version__", "technique"]
