"""Errors of the command line in the words of a Python caller: arguments in the place of options.

Errors are written once, where they arise, and name options: ``fix: --tier=full``. ``speaks_python`` puts what a
function raises into its caller's words: an option that stands for an argument of the function becomes that argument,
``tier='full'``; a command to type becomes ``in a shell: paceline list suites``. An option that is none of its
arguments, and everything within a command, stays. So that this can be done without knowing single messages, an option
in an error has its value behind ``=``; a test holds all errors to that.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from paceline.base.errors import PacelineError
from paceline.base.units import parse_duration

P = ParamSpec("P")
R = TypeVar("R")

ARGUMENTS = {"filter": "filters", "technique": "files", "wait": "wait_s"}
"""Options whose arguments have another name; ``--allow-concurrent`` is ``allow_concurrent`` without being told."""

_COMMAND = re.compile(r"\bpaceline [a-z].*?(?=;|\n|, or |$)")
_OPTION = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z-]*)(?:=(?P<value>[^\s;,)]*[^\s;,):]))?")
_FILTERS = re.compile(r"--filter=\S+(?: --filter=\S+)+")


def speaks_python(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises the same errors, and names its own arguments in them."""

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PacelineError as error:
            error.reword(lambda text: in_python(text, function))
            raise

    return told


def in_python(text: str, *functions: Callable[..., Any]) -> str:
    """Return a text for the command line in the words of somebody who called one of ``functions``."""
    known = {name: kind for function in functions for name, kind in _arguments(function).items()}
    text = text.replace("fix: paceline ", "fix: in a shell: paceline ")
    return "".join(
        part if command else _OPTION.sub(lambda found: _argument(found, known), _merged(part))
        for part, command in _parts(text)
    )


@cache
def _arguments(function: Callable[..., Any]) -> dict[str, str]:
    """Return a function's arguments with their types as they are written."""
    return {p.name: str(p.annotation) for p in inspect.signature(function).parameters.values()}


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Divide a text into commands and the rest, with True for commands."""
    end = 0
    for found in _COMMAND.finditer(text):
        yield text[end : found.start()], False
        yield found[0], True
        end = found.end()
    yield text[end:], False


def _merged(text: str) -> str:
    """Write several filters as one: ``--filter=a=1,b=2`` with a separator that no filter holds."""
    return _FILTERS.sub(lambda found: found[0].replace(" --filter=", "\0"), text)


def _argument(found: re.Match[str], known: dict[str, str]) -> str:
    name = ARGUMENTS.get(found["name"], found["name"].replace("-", "_"))
    if name not in known:
        return found[0].replace("\0", " --filter=")
    kind, value = known[name], found["value"]
    if kind.startswith("bool"):
        return f"{name}=True"
    if value is None:
        return name
    if value.isupper():
        return f"{name}=…"  # DIR, RUN: whatever the caller has
    if kind.startswith("Mapping"):
        return f"{name}={dict(pair.partition('=')[::2] for pair in value.split(chr(0)))!r}"
    if kind.startswith("Sequence"):
        return f"{name}={[value]!r}"
    if name.endswith("_s"):
        return f"{name}={parse_duration(value):g}"
    return f"{name}={value!r}"
