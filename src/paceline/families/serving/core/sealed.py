"""What techniques must leave as they found it: all that is loaded of the family, whoever of it judges or counts."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from paceline.families.serving import api
from paceline.worker.communication import comm
from paceline.worker.fences.seal import loaded_below
from paceline.worker.timing import split

FAMILY = "paceline.families.serving"


def all_loaded(*others: str) -> tuple[ModuleType, ...]:
    """Load what techniques may build on, and return it with all else of the family that is loaded.

    Args:
        others: Further packages of which what is loaded counts.
    """
    # Loaded now, or a technique's own import would load one after the seal was taken, and unseen.
    for module in pkgutil.iter_modules(api.__path__, f"{api.__name__}."):
        importlib.import_module(module.name)
    return (*loaded_below(FAMILY, *others), comm, split)


def after_every_call(operation: str) -> tuple[ModuleType, ...]:
    """Return what ranks look at after every call of a technique, in time that is measured: what a call rests on.

    Args:
        operation: The operation's package.
    """
    return (*loaded_below(api.__name__, f"{FAMILY}.core.engine", operation), comm, split)
