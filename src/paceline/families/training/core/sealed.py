"""What trains, counts and judges, and what techniques build on: nothing in it may be replaced by one of them.

All of it is looked at after every window, and whenever the harness has asked a technique for something. That takes
0.3 ms where it is in the processor's caches and several where a step has filled them, so that after a step, on the
clock, only what the step itself rests on is looked at: its loop, clocks, counters and fences.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Collection
from types import ModuleType

from paceline.families.training import api
from paceline.worker.communication import comm
from paceline.worker.fences import guard, seal, tensors
from paceline.worker.timing import split

FAMILY = "paceline.families.training"
COLLECTIVES = "paceline.families.collectives"
SHARED = tuple(f"{family}.{room}." for family in (FAMILY, COLLECTIVES) for room in ("core", "api"))
OF_A_STEP = frozenset(
    {
        f"{FAMILY}.api.absence",
        f"{FAMILY}.api.own",
        f"{FAMILY}.api.replica",
        f"{FAMILY}.core.memory.held",
        f"{FAMILY}.core.proofs.sandbox",
    }
)
"""Modules whose code the harness runs in a step, beside those of the loop and of the operation."""
SHARED_WITH_OTHERS = (comm, split, guard, seal, tensors)
"""The communicator, clocks and fences themselves."""
SLOW_TO_IMPORT = frozenset({f"{FAMILY}.api.checkpointing.library"})
"""PyTorch's distributed checkpoints with DTensor: an operation that needs them imports them itself."""


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Import all that techniques may build on, and return every module that trains, counts or judges.

    Other operations' folders, whose code does not run, are left out.

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
    return (*SHARED_WITH_OTHERS, *(sys.modules[name] for name in loaded))


def sealed_in_time(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what a step rests on, of what ``sealed`` returns, which has to be called before.

    Args:
        operations: As there.
    """
    packages = (f"{FAMILY}.core.loop.", *(f"{FAMILY}.ops.{operation}." for operation in operations))
    loaded = sorted(name for name in sys.modules if name.startswith(packages) or name in OF_A_STEP)
    return (*SHARED_WITH_OTHERS, *(sys.modules[name] for name in loaded))


def _is_room_of_core(name: str) -> bool:
    """Tell whether a module is a package of a core: it holds no code, and imports during a step add names to it."""
    return ".core." in name and hasattr(sys.modules[name], "__path__")
