"""What techniques must leave as they found it: all that runs, counts or judges, and what they build on."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from types import ModuleType

from paceline.families.reasoning import api, core
from paceline.worker.fences.seal import loaded_below

FAMILY = "paceline.families.reasoning"


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Import the core and what techniques may build on, and return all of the family that is loaded.

    It is looked at when a technique has answered, never in time that is measured.

    Args:
        operations: Those whose ``run`` was imported, and with it what each of them has of its own.
    """
    del operations
    for package in (api, core):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    return loaded_below(FAMILY)
