"""Paceline: reproducible benchmarks for parallel and distributed machine-learning techniques.

For techniques: ``technique``. For scripts and notebooks: ``run``, ``load``, ``compare`` and ``show_claims``, which
docs/python-api.md shows.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from paceline.base.techniques.technique import technique

if TYPE_CHECKING:
    from paceline.workflows.api import Run, compare, load, run, show_claims

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "compare", "load", "run", "show_claims", "technique"]

_CONTROLLERS = ("Run", "compare", "load", "run", "show_claims")
"""Imported when somebody asks for them: ranks import this package on machines that have torch and numpy alone."""


def __getattr__(name: str) -> Any:
    """Return a name of the control plane."""
    if name not in _CONTROLLERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("paceline.workflows.api"), name)


def __dir__() -> list[str]:
    """List the names of the control plane, too."""
    return sorted({*globals(), *_CONTROLLERS})
