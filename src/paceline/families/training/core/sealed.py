"""What trains, counts and judges, and what techniques build on: nothing in it may be replaced by one of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Collection
from types import ModuleType

from paceline.families.training import api
from paceline.worker.communication import comm
from paceline.worker.timing import split

FAMILY = "paceline.families.training"
COLLECTIVES = "paceline.families.collectives"
SHARED = tuple(f"{family}.{room}." for family in (FAMILY, COLLECTIVES) for room in ("core", "api"))
SLOW_TO_IMPORT = frozenset({f"{FAMILY}.api.checkpointing.library"})
"""PyTorch's distributed checkpoints with DTensor: an operation that needs them imports them itself."""


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Import all that techniques may build on, and return every module that trains, counts or judges.

    They are looked at after every step: other operations' folders, whose code does not run, are left out.

    Args:
        operations: Those whose ``run`` was imported, and with it what each of them has of its own.
    """
    for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        # Imported now, before techniques are: a module that one of them
        # imports first could be replaced before it is noted.
        if module.name not in SLOW_TO_IMPORT:
            importlib.import_module(module.name)
    wanted = (*SHARED, *(f"{FAMILY}.ops.{operation}." for operation in operations))
    loaded = sorted(name for name in sys.modules if name.startswith(wanted) and not _is_room_of_core(name))
    return (comm, split, *(sys.modules[name] for name in loaded))


def _is_room_of_core(name: str) -> bool:
    """Tell whether a module is a package of a core: it holds no code, and imports during a step add names to it."""
    return ".core." in name and hasattr(sys.modules[name], "__path__")
