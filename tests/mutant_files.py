"""Loads a known-wrong implementation from its file, as a module of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def module_of(path: Path) -> ModuleType:
    """Return what a file defines; nothing of it is found by import afterwards."""
    specification = importlib.util.spec_from_file_location(f"mutant_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
