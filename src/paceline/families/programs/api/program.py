"""What a technique of programs says: which program is run, where, with which environment, and how it is judged.

Texts are split into words as a POSIX shell splits them, and no shell is asked: neither ``$NAME`` nor ``*`` means
anything. Where a shell is wanted, the text goes to ``/bin/sh -c`` whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

SHELL = "/bin/sh"
GIVEN = "{input}"
"""Stands in a command for the point's ``input``."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program as it is run at a point."""

    argv: tuple[str, ...]
    """The program and its arguments; without a slash the program is looked for on ``PATH``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those that the harness hands on."""
    folder: str = ""
    """Where it runs; a relative one lies in the folder in which ``paceline`` was called."""
    ranks: int = 0
    """Processes of torchrun around it; 0: it is started as it is."""
    build: tuple[str, ...] = ()
    """A command that makes the program, called once before everything else, untimed; none where it is empty."""
    check: tuple[str, ...] = ()
    """A command that is called after every run, untimed, with the run's output as its input: anything but exit status 0
    says that the run was wrong. None where it is empty."""
    reported: Mapping[str, str] = field(default_factory=dict)
    """Metrics that the program reports itself: by name where each stands (``reported``)."""


class Programmed(Protocol):
    """A technique of ``execute``: ``T(**options)``."""

    def program(self, given: str) -> Program:
        """Return what is run at a point whose ``input`` is given.

        Raises:
            ValueError: An option of the technique cannot be read.
        """


def command_words(text: str, *, given: str = "", shell: bool = False) -> tuple[str, ...]:
    """Split a command into words.

    Args:
        text: The command.
        given: Takes the place of ``{input}``: of a word or a part of one, never of several.
        shell: Leave the splitting to ``/bin/sh``.

    Raises:
        ValueError: It is empty, or a quotation does not end.
    """
    if shell:
        return (SHELL, "-c", text.replace(GIVEN, shlex.quote(given)))
    try:
        found = tuple(word.replace(GIVEN, given) for word in shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be split into words: {str(error).lower()}") from None
    if not found:
        raise ValueError("the command is empty")
    return found


def variables(text: str) -> dict[str, str]:
    """Read ``NAME=VALUE OTHER='a b'``.

    Raises:
        ValueError: A word is no assignment.
    """
    found = {}
    for word in command_words(text) if text.strip() else ():
        name, equals, value = word.partition("=")
        if not equals or _VARIABLE.fullmatch(name) is None:
            raise ValueError(f"{word!r} is no NAME=VALUE")
        found[name] = value
    return found


def reported_lines(text: str) -> dict[str, str]:
    """Read lines ``NAME = WHERE``.

    Raises:
        ValueError: A line is none, or two have one name.
    """
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, where = (part.strip() for part in line.partition("="))
        if not equals or not name or not where:
            raise ValueError(f"{line!r} is no NAME = WHERE, such as tokens_per_s = ([0-9.]+) tokens/s")
        if name in found:
            raise ValueError(f"'{name}' is read from two places")
        found[name] = where
    return found
