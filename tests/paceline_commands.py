"""Paceline's command line as tests call it: what is measured draws from the seed of the module whose test calls.

``run``, ``plan``, ``load`` and ``job export`` get their own ``--seed``. Other commands measure as well and take none:
nights must draw anew. Their plans follow from the seed by ``fixed_plans``, which a test uses in its own process, too.
Documents that are followed command by command are called as they stand: they draw anew, and only their words are read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seeds

WITH_SEED = (("run",), ("plan",), ("load",), ("job", "export"))
"""Commands that have the option."""
WITHOUT_SEED = frozenset({"calibrate", "check", "first-contact", "kernel", "nightly", "time"})
"""Commands that measure and have none."""
_BEGIN = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import paceline_commands
del sys.path[0]
paceline_commands.begin(int(sys.argv.pop(1)))
"""


def arguments(*given: object, draw: int = 0) -> list[str]:
    """Return the arguments of a command, with the module's seed where it measures and has no other.

    Args:
        given: What comes behind ``paceline``.
        draw: Another number for each run of a test that is to draw otherwise.
    """
    words = [str(word) for word in given]
    begin = next((len(command) for command in WITH_SEED if tuple(words[: len(command)]) == command), 0)
    if not begin or "--resume" in words or any(word.partition("=")[0] == "--seed" for word in words):
        return words
    return [*words[:begin], f"--seed={seeds.current() + draw}", *words[begin:]]


def command(*given: object, draw: int = 0) -> list[str]:
    """Return what calls Paceline in a process of its own; the arguments are those of ``arguments``."""
    words = arguments(*given, draw=draw)
    if words and words[0] in WITHOUT_SEED:
        return [sys.executable, "-c", _BEGIN, str(seeds.current() + draw), *words]
    return [sys.executable, "-m", "paceline.cli", *words]


@contextlib.contextmanager
def fixed_plans(seed: int) -> Iterator[None]:
    """Let plans of this process follow from a seed where nothing names one."""
    from paceline.spec.plans.plan import Selection

    made = Selection.__init__

    def with_seed(self: Selection, **fields: Any) -> None:
        made(self, **fields | {"seed": seed if fields.get("seed") is None else fields["seed"]})

    Selection.__init__ = with_seed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Selection.__init__ = made  # type: ignore[method-assign]


def begin(seed: int) -> None:
    """Be the command line whose plans follow from a seed."""
    from paceline.cli import main

    with fixed_plans(seed):
        main()
