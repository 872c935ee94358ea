"""Imports techniques inside the fences, each judged by its source first."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from paceline.base.families.family import load_family
from paceline.base.techniques.requirements import lacking
from paceline.base.techniques.technique import REGISTRY, read_source
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.fences.source import computing_modules, optional_libraries, source_problems
from paceline.worker.ranks.session import CaseError, Loaded


def load_techniques(blocks: list[dict[str, Any]], job: Path, guard: Guard) -> dict[str, Loaded]:
    """Import every technique of an attempt, each judged by its source first; what judges them is sealed before."""
    loaded: dict[str, Loaded] = {}
    wanted = {(c["module"], c["technique"], b["family"]) for b in blocks for c in b["cases"]}
    here = [b for b in blocks if not _isolated(b)]
    own = {(c["module"], c["technique"], b["family"]) for b in here for c in b["cases"]}
    by_runner: dict[str, set[str]] = {}
    for block in here:
        by_runner.setdefault(runner_module(block), set()).add(_operation(block))
    for name, operations in sorted(by_runner.items()):
        runner = importlib.import_module(name)
        if hasattr(runner, "sealed"):
            modules = runner.sealed(operations)
            in_time = runner.sealed_in_time(operations) if hasattr(runner, "sealed_in_time") else None
            guard.seal(modules, in_time=in_time)
        if hasattr(runner, "sealed_seldom"):
            guard.seal((), seldom=runner.sealed_seldom(operations))
    for key in sorted(wanted):
        module, name, family = key
        loaded[f"{module}:{name}"] = (
            load(module, name, family, job, guard) if key in own else _judge(module, job)
        )
    return loaded


def runner_module(block: dict[str, Any]) -> str:
    """Return the dotted name of the module that measures a block."""
    return load_family(block["family"]).runner_module(_operation(block))


def _operation(block: dict[str, Any]) -> str:
    return str(block["params"].get(load_family(block["family"]).operation_key))


def _isolated(block: dict[str, Any]) -> bool:
    """Tell whether a block's techniques run in processes of their own."""
    return load_family(block["family"]).is_isolated(_operation(block))


def _judge(module: str, job: Path) -> Loaded:
    """Judge the source of a technique that another process will import; a user's file, whoever imports it judges."""
    if module.startswith("user:"):
        return Loaded(info=None, factory=None)
    try:
        allowed_source(module, job)
    except CaseError as refusal:
        return Loaded(info=None, factory=None, refusal=refusal)
    return Loaded(info=None, factory=None)


def allowed_source(module: str, job: Path) -> Path:
    """Return the file of a technique's module.

    Raises:
        CaseError: It is missing, or its source does what a technique may not.
    """
    path = _source(module, job)
    problems = source_problems(path)
    if problems:
        raise CaseError("refused", "; ".join(problems[:5]))
    return path


def load(module: str, name: str, family: str, job: Path, guard: Guard, *, any_source: bool = False) -> Loaded:
    """Import one technique; with ``any_source`` whatever it imports and uses, which a sandbox has to hold."""
    try:
        path = _source(module, job) if any_source else allowed_source(module, job)
        _require_packages(path, module, name)
        _import_libraries(path)
        _import_once(module, path, guard)
    except CaseError as refusal:
        return Loaded(info=None, factory=None, refusal=refusal)
    except Exception as error:
        return Loaded(info=None, factory=None, refusal=_not_imported(error))
    found = REGISTRY.get((family, name))
    if found is None:
        return Loaded(
            info=None,
            factory=None,
            refusal=CaseError("crashed", f"the module {module} did not register '{name}'"),
        )
    return Loaded(info=found[0], factory=found[1])


_failed: dict[tuple[str, Path], tuple[str, str, str | None]] = {}
"""Module and file → status, reason and traceback of its import."""


def _import_once(module: str, path: Path, guard: Guard) -> None:
    """Import a technique's module inside the fences; of a file of several, the first failure is that of them all.

    Raises:
        CaseError: It cannot be imported, or does while it is imported what a technique may not.
    """
    if (earlier := _failed.get((module, path))) is not None:
        raise CaseError(*earlier)  # half a module may have registered some of its techniques
    try:
        with guard.watch():
            if module not in sys.modules:
                _import(module, path)
        guard.check_operators()
    except Exception as error:
        found = _not_imported(error)
        if isinstance(error, ContractBreachError):
            found = CaseError("refused", f"while imported: {error}")
        _failed[module, path] = found.status, found.reason, found.detail
        sys.modules.pop(module, None)
        raise found from error


def _not_imported(error: Exception) -> CaseError:
    """Call it where the error is handled, whose traceback the record keeps."""
    reason = f"cannot be imported: {type(error).__name__}: {error}"
    return CaseError("crashed", reason, traceback.format_exc(limit=8))


def _require_packages(path: Path, module: str, name: str) -> None:
    """Look for the packages that a technique says it requires.

    Raises:
        CaseError: ``unsupported``: one is missing, or too old.
    """
    for source in read_source(path, module=module):
        reasons = lacking(source.info.requires.packages) if source.info.name == name else []
        if reasons:
            raise CaseError("unsupported", "; ".join(reasons))


def _import_libraries(path: Path) -> None:
    """Import a technique's optional libraries, and others that no rank may have imported yet, outside of the fences.

    Raises:
        CaseError: ``unsupported``: one is not installed here.
    """
    for library in optional_libraries(path):
        try:
            importlib.import_module(library)
        except ImportError as error:
            package = library.split(".")[0]
            reason = f"needs {package}, which is not installed here: pip install {package}"
            raise CaseError("unsupported", reason) from error
    for name in computing_modules(path):
        with suppress(ImportError):  # the technique's own import says so
            importlib.import_module(name)


def renewed(module: str, name: str, family: str) -> Any:
    """Execute a technique's module once more and return its factory: what the first one kept, this one does not know.

    Call it inside the fences.
    """
    path = sys.modules[module].__file__
    assert path is not None
    specification = importlib.util.spec_from_file_location(module, path)
    assert specification is not None and specification.loader is not None
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
    return REGISTRY[(family, name)][1]


def _source(module: str, job: Path) -> Path:
    if module.startswith("user:"):
        return job / "user" / f"{module.removeprefix('user:')}.py"
    specification = importlib.util.find_spec(module)
    if specification is None or not specification.origin:
        raise CaseError("crashed", f"the module {module} is not in the job folder")
    return Path(specification.origin)


def _import(module: str, path: Path) -> None:
    sys.dont_write_bytecode = True  # a technique may not write files, and its cached bytecode would be one
    if not module.startswith("user:"):
        importlib.import_module(module)
        return
    specification = importlib.util.spec_from_file_location(module, path)
    assert specification is not None and specification.loader is not None
    created = importlib.util.module_from_spec(specification)
    sys.modules[module] = created
    specification.loader.exec_module(created)
