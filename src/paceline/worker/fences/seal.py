"""What a technique must leave as it found it: functions, the harness's own modules, PyTorch's kernels, settings.

All of it can be reached by somebody who looks for it by computed names, so it is compared after every call, in training
after every step. What is PyTorch's is in ``tensors.py``: a process that computes with no tensor does not import it.
"""

from __future__ import annotations

import gc
import operator
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol

FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "thread_time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "time"),
    (time, "time_ns"),
    (time, "sleep"),
)
"""Functions that timing rests on, or the oracle."""
OWN_CLASS_NAMES = frozenset({"__annotations__", "__abstractmethods__"})
"""What Python itself adds to a class that somebody looks at."""

SIGNALS = tuple(sorted(int(number) for number in signal.valid_signals()))
"""Whose handlers would run between a technique's calls, where nobody watches; so would the collector's callbacks."""

_handler = signal._signal.getsignal  # type: ignore[attr-defined] # ten times as fast as what wraps it
_setattr, _delattr, _all, _map, _is = setattr, delattr, all, map, operator.is_


class Tensors(Protocol):
    """What ``paceline.worker.fences.tensors`` knows of PyTorch."""

    FUNCTIONS: tuple[tuple[Any, str], ...]
    OPERATORS: tuple[str, ...]

    def table(self, operator: str, /) -> str:
        """Return the kernels behind an operator, as text."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return PyTorch's settings of this process that one technique could leave to another."""
        ...

    def entry_points(self) -> list[tuple[Any, str]]:
        """Return the functions of ``torch.distributed`` that are the harness's alone: each its owner and its name."""
        ...


class Seal:
    """A picture of what must not change, taken before any technique is imported.

    Args:
        modules: Modules of which every global, and every attribute of every class that they define, must stay.
        moving: Names in them that change by themselves.
        tensors: ``paceline.worker.fences.tensors``; None where the process computes with no tensor.
    """

    def __init__(
        self,
        modules: Sequence[ModuleType] = (),
        *,
        moving: Sequence[str] = (),
        tensors: Tensors | None = None,
    ) -> None:
        self._moving = frozenset(moving)
        functions = [*FUNCTIONS, *(tensors.FUNCTIONS if tensors else ())]
        self._functions = [(owner, name, getattr(owner, name)) for owner, name in functions]
        self._namespaces: list[_Namespace] = []
        self._in_time: list[_Namespace] = []
        self._modules: set[str] = set()
        self.add(modules)
        self._table = tensors.table if tensors else None
        self._operators = {name: tensors.table(name) for name in tensors.OPERATORS} if tensors else {}

    def add(self, modules: Sequence[ModuleType], *, in_time: Sequence[ModuleType] | None = None) -> None:
        """Take more modules into the picture; those that are in it stay as they were.

        Args:
            modules: All of them.
            in_time: Those that are looked at in time that is measured; None: all.
        """
        often = {module.__name__ for module in (modules if in_time is None else in_time)}
        for module in modules:
            if module.__name__ in self._modules:
                continue
            self._modules.add(module.__name__)
            found = [_Namespace(module.__name__, module)]
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__ != "builtins":
                    found.append(_Namespace(f"{module.__name__}.{value.__name__}", value))
            self._namespaces += found
            self._in_time += found if module.__name__ in often else []

    def restore(self, *, in_time: bool = False) -> list[str]:
        """Put back what was replaced, lest the next technique be blamed; return its names.

        Args:
            in_time: Look only at what is looked at in time that is measured.
        """
        replaced: list[str] = []
        for owner, name, original in self._functions:
            if getattr(owner, name) is not original:
                _setattr(owner, name, original)
                replaced.append(f"{getattr(owner, '__name__', owner)}.{name}")
        for namespace in self._in_time if in_time else self._namespaces:
            if namespace.is_as_before():
                continue
            for name in namespace.different():
                if name in self._moving:
                    continue
                if name in namespace.names:
                    _setattr(namespace.owner, name, namespace.names[name])
                else:
                    _delattr(namespace.owner, name)
                replaced.append(f"{namespace.label}.{name}")
        return replaced

    def replaced_operator(self) -> str | None:
        """Return the name of an operator behind which other kernels stand than before; they cannot be put back."""
        if self._table is None:
            return None
        return next((name for name, table in self._operators.items() if self._table(name) != table), None)


class _Namespace:
    """The names of a module or a class, and the objects behind them, which it keeps alive."""

    def __init__(self, label: str, owner: Any) -> None:
        self.label = label
        self.owner = owner
        self.names: dict[str, Any] = dict(vars(owner))
        self._keys = [*self.names]
        self._values = [*self.names.values()]

    def is_as_before(self) -> bool:
        """Say yes when every name, in the old order, stands for the old object: this runs after every call."""
        present = vars(self.owner)
        return [*present] == self._keys and _all(_map(_is, present.values(), self._values))

    def different(self) -> list[str]:
        """Return the names that stand for something else, are gone or are new, but for Python's own."""
        present, before = vars(self.owner), self.names
        changed = [name for name, value in before.items() if present.get(name) is not value]
        if isinstance(self.owner, type):
            return changed + [name for name in present if name not in before and name not in OWN_CLASS_NAMES]
        return changed + [name for name in present if name not in before and not name.startswith("__")]


def loaded_below(*packages: str) -> tuple[ModuleType, ...]:
    """Return all modules of packages that are loaded by now; none that are packages: imports add names to these."""
    return tuple(
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(tuple(f"{package}." for package in packages)) and not hasattr(module, "__path__")
    )


def settings() -> dict[str, Any]:
    """Return the settings of this process that one technique could leave to another, but for PyTorch's."""
    return {
        "os.sched_getaffinity": os.sched_getaffinity(0),
        "os.nice": os.getpriority(os.PRIO_PROCESS, 0),
        "gc.callbacks": list(gc.callbacks),
        "signal.signal": [*_map(_handler, SIGNALS)],
    }
