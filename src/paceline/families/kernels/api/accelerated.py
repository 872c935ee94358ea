"""Triton kernels of shipped techniques, found when an accelerator needs them."""

from __future__ import annotations

import importlib
from typing import Any


def triton_kernel(module: str, name: str) -> Any:
    """Return a function or class of ``baselines/kernels/<module>.py``.

    Raises:
        ImportError: There is no such module, or it needs Triton and there is none.
    """
    return getattr(importlib.import_module(f"paceline.baselines.kernels.{module}"), name)
