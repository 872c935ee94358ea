"""A process in which a technique answers: fenced, knowing what it may know.

It reads one JSON document and writes another; whoever started it judges what it wrote. An operation whose techniques
are asked so has a module that says what to do with one, and calls ``main`` when it is run.
"""

from __future__ import annotations

import json
import json.encoder
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.families.serving.core.sealed import all_loaded
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.processes.process import die_with_parent
from paceline.worker.ranks.loading import load
from paceline.worker.ranks.session import CaseError

Make = Callable[[], Any]
"""Makes the technique anew; call it inside the fences."""
Play = Callable[[Make, Guard, Mapping[str, Any]], dict[str, Any]]
"""Asks a technique, inside the fences, and returns what it said."""


def main(play: Play, *, sealed: tuple[str, ...] = ()) -> int:
    """Answer what was asked; what goes wrong is told with a status.

    Args:
        play: The operation's part.
        sealed: Packages besides the family's of which the technique must leave what is loaded as it found it.
    """
    die_with_parent()
    asked = json.load(sys.stdin)
    try:
        answer = _answer(play, sealed, asked)
    except CaseError as error:
        answer = {"status": error.status, "reason": error.reason, "detail": error.detail}
    except (RefusedStepError, ContractBreachError) as error:
        answer = {"status": "refused", "reason": str(error), "detail": None}
    except UnsupportedError as error:
        answer = {"status": "unsupported", "reason": str(error), "detail": None}
    except Exception as error:  # of the technique: whoever judges writes it down
        reason = f"{type(error).__name__}: {error}"
        answer = {"status": "crashed", "reason": reason, "detail": traceback.format_exc(limit=8)}
    # One document on every way out: whoever asked tells a refusal from a crash by its status, and never by an exit
    # code.
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def _answer(play: Play, sealed: tuple[str, ...], asked: Mapping[str, Any]) -> dict[str, Any]:
    # What writes the answer is sealed too, or a technique could have another one written than it gave.
    guard = Guard((*all_loaded(*sealed), sys.modules["__main__"], json, json.encoder))
    loaded = load(asked["module"], asked["technique"], "serving", Path.cwd(), guard)
    if loaded.refusal is not None:
        raise loaded.refusal
    return {"status": "ok", **play(lambda: loaded.factory(**asked["options"]), guard, asked)}


def made(make: Make, guard: Guard) -> Any:
    """Make a technique inside the fences.

    Raises:
        CaseError: It cannot be made.
        ContractBreachError: It did what a technique may not.
        UnsupportedError: It cannot run the point, as it says itself.
    """
    try:
        with guard.watch():
            return make()
    # These have meanings of their own; all else that its constructor raises is a crash.
    except (ContractBreachError, UnsupportedError):
        raise
    except Exception as error:
        raise CaseError("crashed", f"cannot be made: {type(error).__name__}: {error}") from error
