"""What a technique must leave as it found it: all that is loaded of the family in its process, whatever it is for."""

from __future__ import annotations

import builtins
import importlib
import json
import json.encoder
import pkgutil
import socket
from types import ModuleType

from paceline.families.kernels import api
from paceline.worker import channel
from paceline.worker.fences import guard, tensors
from paceline.worker.fences.seal import loaded_below
from paceline.worker.ranks import loading

FAMILY = "paceline.families.kernels"
OTHERS = (channel, guard, tensors, loading, builtins, json, json.encoder, socket)
"""What the process speaks and judges with besides."""

for _module in pkgutil.iter_modules(api.__path__, f"{api.__name__}."):
    importlib.import_module(
        _module.name
    )  # before processes are forked, and before a technique loads one of them


def all_loaded() -> tuple[ModuleType, ...]:
    """Return what techniques may build on, all else of the family that is loaded, and what it rests on."""
    return (*loaded_below(FAMILY), *OTHERS)
