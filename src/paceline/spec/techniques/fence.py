"""Tells an author, before anything is measured, what a technique's source may not import or use.

Ranks look again before they import it: this is the same look (``paceline.worker.fences.source``), with places and
remedies.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from paceline.base.errors import UserError, nearest
from paceline.worker.fences.source import source_problems
from paceline.worker.sandbox.bubblewrap import UNISOLATED, available

SANDBOXED = ("kernels",)
"""Families whose candidates run in a sandbox of the kernel, where one can be had: there any source may run."""


def fence_errors(path: Path, family: str, isolation: str = UNISOLATED) -> list[UserError]:
    """Return a mistake for each line of a technique that ranks would refuse.

    Args:
        path: Of its source.
        family: Of the technique.
        isolation: What the runner profile asks for; a shipped technique has none.
    """
    if family in SANDBOXED and available(isolation)[0] != UNISOLATED:
        return []
    package = f"paceline.families.{family}.api"
    modules = list(_modules(package))
    errors = []
    for problem in source_problems(path):
        line, _, what = problem.partition(": ")
        errors.append(
            UserError(
                f"the technique {what}, which ranks refuse",
                where=f"{path}:{line.removeprefix('line ')}",
                expected=f"torch, numpy, parts of the standard library that compute, and modules of {package}",
                fix=_instead(what, modules),
            )
        )
    return errors


def _instead(what: str, modules: list[str]) -> str | None:
    """Return the module of the family's ``api`` that was probably meant."""
    found = re.fullmatch(r"imports paceline\.families\.\w+\.([\w.]+)\.\w+", what)
    if found is None:
        return None
    meant = nearest(found[1].rpartition(".")[2], [m.rpartition(".")[2] for m in modules])
    return next((f"import from {m}" for m in modules if m.rpartition(".")[2] == meant), None)


def _modules(package: str) -> Iterator[str]:
    """Name the modules of a package and of those in it, importing packages only; an internal family has none."""
    if find_spec(package) is None:
        return
    folder = import_module(package)
    for module in pkgutil.iter_modules(folder.__path__, f"{package}."):
        if module.ispkg:
            yield from _modules(module.name)
        else:
            yield module.name
