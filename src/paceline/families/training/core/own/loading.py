"""Imports what points name in files of the user's, as the job folder holds them; what fails is told in one line."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from paceline.base.files.own_code import INDEX, OWN_CODE
from paceline.worker.ranks.session import CaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An object of the user's, with what is said where it fails."""

    key: str
    """The parameter that names it."""
    text: str
    """As the suite names it."""
    object: Callable[..., Any]
    folder: Path
    """Of the suite."""
    files: Path
    """Of the copied code."""

    def called(self, offered: Mapping[str, Any]) -> Any:
        """Call it with those of the offered arguments that it names.

        Raises:
            CaseError: ``invalid``: it wants another one, or raised.
        """
        taken = self.taken(offered)
        try:
            return self.object(**taken)
        except Exception as error:
            raise self.failure(error, "was called and") from error

    def taken(self, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the offered arguments that it names; all where it takes any.

        Raises:
            CaseError: ``invalid``: it wants one that is not among them.
        """
        try:
            wanted = inspect.signature(self.object).parameters
        except (TypeError, ValueError):
            return {}
        kinds = inspect.Parameter
        if any(p.kind is kinds.VAR_KEYWORD for p in wanted.values()):
            return dict(offered)
        for name, parameter in wanted.items():
            needed = parameter.default is kinds.empty and parameter.kind is not kinds.VAR_POSITIONAL
            if needed and (name not in offered or parameter.kind is kinds.POSITIONAL_ONLY):
                self.refuse(f"wants the argument '{name}'", f"none but {', '.join(offered)}, or defaults")
        return {name: value for name, value in offered.items() if name in wanted}

    def refuse(self, what: str, expected: str) -> NoReturn:
        """Say what is wrong with it.

        Raises:
            CaseError: ``invalid``.
        """
        raise CaseError("invalid", f"{self.key}: {self.text} {what}; expected: {expected}")

    def failure(self, error: BaseException, what: str) -> CaseError:
        """Return what it raised, with the last line of the user's that was under way."""
        return CaseError(
            "invalid",
            f"{self.key}: {self.text} {what} raised{_line(error, self.files)} {_words(error)}",
            "".join(traceback.format_exception(error, limit=-8)),
        )


def load_named(key: str, params: Mapping[str, Any], job: Path | None = None) -> Named:
    """Import what a parameter names.

    Args:
        key: The parameter.
        params: Of the point.
        job: The job's folder; None for where the rank works.

    Raises:
        CaseError: ``invalid``: it cannot be imported, or is nothing that can be called.
    """
    files = (job or Path.cwd()) / OWN_CODE / str(params["sources"])
    index = json.loads((files / INDEX).read_text())
    text = str(params[key])
    place = index["places"][text]
    try:
        module = _imported(place["module"], None if place["root"] is None else files / place["root"])
    except Exception as error:
        fix = ""
        if isinstance(error, ModuleNotFoundError) and error.name:
            fix = f"; pip install {error.name.partition('.')[0]}, or put it beside the suite"
        raise CaseError(
            "invalid",
            f"{key}: {text} cannot be imported:{_line(error, files)} {_words(error)}{fix}",
            "".join(traceback.format_exception(error, limit=-8)),
        ) from error
    found: Any = getattr(module, place["name"], None)
    named = Named(key=key, text=text, object=found, folder=Path(index["folder"]), files=files)
    if not callable(found):
        what = (
            f"is an object of type {type(found).__name__}"
            if hasattr(module, place["name"])
            else "is not there"
        )
        named.refuse(what, "a function or class")
    return named


def _imported(module: str, root: Path | None) -> Any:
    """Import a module, one of the copied files from their folder; a module that another copy has is made anew."""
    if root is None:
        return importlib.import_module(module)
    sys.dont_write_bytecode = True  # the job's folder holds what was copied and no more
    own = root.parent.parent
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if file and Path(file).is_relative_to(own) and not Path(file).is_relative_to(root):
            del sys.modules[name]
    sys.path[:] = [str(root), *(p for p in sys.path if not Path(p).is_relative_to(own))]
    known = sys.modules.get(module)
    if known is not None and not Path(getattr(known, "__file__", None) or "/").is_relative_to(root):
        raise ImportError(
            f"'{module}' is the name of a module that runs here already; give the file another name"
        )
    importlib.invalidate_caches()
    return importlib.import_module(module)


def _line(error: BaseException, files: Path) -> str:
    """Name the last line of the user's own that an error went through."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" {Path(error.filename).name}:{error.lineno}:"
    lines = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(files)]
    return f" {Path(lines[-1].filename).name}:{lines[-1].lineno}:" if lines else ""


def _words(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
