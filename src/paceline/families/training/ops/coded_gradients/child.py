"""The processes in which masters of ``coded_gradients`` run: one with its workers, and another again alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from paceline.families.training.api import coding as api
from paceline.families.training.api.coding import Given, Master
from paceline.families.training.core import apart
from paceline.families.training.ops.coded_gradients import engine, straggling, work
from paceline.worker.fences.guard import Guard
from paceline.worker.ranks.session import Case

SEALED = (api, apart, engine, straggling, work, np.random, np.linalg, pickle)


def given_of(params: dict[str, Any], seed: int) -> Given:
    """Return what a master is told."""
    return Given(workers=int(params["workers"]), jobs=int(params["jobs"]), seed=seed + 1)


def play(asked: dict[str, Any]) -> bytes:
    """Play a case.

    Args:
        asked: ``case``, ``params`` and ``seed``.

    Returns:
        What was played, and what the master had planned.
    """
    return apart.told_as_failure(lambda: _played(asked))


def _played(asked: dict[str, Any]) -> bytes:
    case, params, seed = Case(**asked["case"]), asked["params"], int(asked["seed"])
    guard = Guard(SEALED)
    make = apart.maker(case, guard)
    given = given_of(params, seed)
    with guard.watch():
        master: Master = make(**case.options)
        plan = master.plan(given)
        drawn = straggling.Straggling(params, seed)
        found = engine.Engine(params, plan, master.run(given), drawn, work.Work(params, seed)).play()
    guard.check()
    return pickle.dumps({"played": found, "plan": plan})


def replay(asked: dict[str, Any]) -> bytes:
    """Run a master again, in a process that has never drawn how long workers take.

    Args:
        asked: ``case``, ``params``, ``seed``, ``answers`` and ``wanted``.

    Returns:
        A sentence where it wants something else, or none.
    """
    return apart.told_as_failure(lambda: _replayed(asked))


def _replayed(asked: dict[str, Any]) -> bytes:
    case = Case(**asked["case"])
    make = apart.maker(case, Guard(SEALED))
    given = given_of(asked["params"], int(asked["seed"]))
    master: Master = make(**case.options)
    master.plan(given)
    run = master.run(given)
    problem = apart.where_apart(run, asked["answers"], asked["wanted"])
    return pickle.dumps({"problem": problem})
