"""What an operation hands to a technique's ``run``: its arguments in order, with their shapes and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Role = Literal["in", "out", "inout"]
DTYPE = "dtype"
"""The type that the point's parameter ``dtype`` names."""
WIDE = "float32, or float64 where dtype is"
ROLES = {"in": "read", "out": "to be filled", "inout": "read, and changed in place"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of ``run``; tests hold it against what a call is given."""

    name: str
    shape: tuple[str, ...]
    """Length of each axis: a parameter of the operation, or a formula of some."""
    role: Role
    dtype: str = DTYPE
    doc: str = ""
    """What name, shape and type do not say."""

    @property
    def text(self) -> str:
        """Name, shape, type and role in one line."""
        shape = f"({', '.join(self.shape)}{',' if len(self.shape) == 1 else ''})"
        return f"{self.name} {shape}, {self.dtype}, {ROLES[self.role]}{f'; {self.doc}' if self.doc else ''}"


def given(name: str, *shape: str, dtype: str = DTYPE, doc: str = "") -> Argument:
    """Return an input; each of ``shape`` is the length of an axis."""
    return Argument(name=name, shape=shape, role="in", dtype=dtype, doc=doc)


def filled(name: str, *shape: str, dtype: str = DTYPE, doc: str = "") -> Argument:
    """Return an output; each of ``shape`` is the length of an axis."""
    return Argument(name=name, shape=shape, role="out", dtype=dtype, doc=doc)


def changed(name: str, *shape: str, doc: str = "") -> Argument:
    """Return what is input and output; each of ``shape`` is the length of an axis."""
    return Argument(name=name, shape=shape, role="inout", doc=doc)


def signature(arguments: Sequence[Argument]) -> str:
    """Return ``run`` with its arguments, such as ``run(a, b, c)``."""
    return f"run({', '.join(a.name for a in arguments)})"
