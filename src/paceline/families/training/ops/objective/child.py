"""The processes in which techniques optimise: one plays all nodes, and another runs each of them again alone.

What is played is judged by whoever started them; the second process never draws a problem, so that a node has nothing
there but the answers that it got.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.families.training.api import objective as api
from paceline.families.training.api.objective import Given, Optimiser
from paceline.families.training.core import apart
from paceline.families.training.core.planning import graphs
from paceline.families.training.ops.objective import attacks, engine, paces, problems, told
from paceline.families.training.ops.objective.engine import Engine, Played, fixed
from paceline.worker.fences.guard import Guard
from paceline.worker.ranks.session import Case

SEALED = (api, apart, attacks, engine, graphs, paces, problems, told, np.random, np.linalg, json, pickle)


def play(asked: dict[str, Any]) -> bytes:
    """Play all nodes of a case.

    Args:
        asked: ``case``, ``params``, ``seed`` and ``options``.

    Returns:
        What was played, and of each node what it was told, answered, and wanted.
    """
    return apart.told_as_failure(lambda: _played(asked))


def _played(asked: dict[str, Any]) -> bytes:
    case, params, seed = Case(**asked["case"]), asked["params"], int(asked["seed"])
    guard = Guard(SEALED)
    make = apart.maker(case, guard)
    problem = problems.draw(params, int(params["nodes"]), seed)
    given = told.given_of(problem, params, seed + 1)
    with guard.watch():
        optimisers = [make(**asked["options"]) for _ in given]
        sizes = optimisers[0].sizes(given[-1])
        runs = [o.run(g) for o, g in zip(optimisers, given, strict=True)]
        played = Engine(
            problem,
            params,
            runs,
            paces.Paces(params, problem.count, seed + 2),
            [g.neighbours for g in given],
            told.first_with_data(params),
            seed + 3,
            told.leaving(params, seed + 4),
            attacks.byzantine(params, seed + 5),
        )
        found: Played = played.play()
    guard.check()
    nodes = [(g, n.answers, n.wanted) for g, n in zip(given, played.nodes, strict=True)]
    return pickle.dumps({"played": found, "sizes": sizes, "nodes": pickle.dumps(nodes)})


def replay(asked: dict[str, Any]) -> bytes:
    """Run every node again, each in a fork that has imported the technique anew and knows what that node was told.

    Args:
        asked: ``case``, ``options`` and ``nodes``.

    Returns:
        A sentence for the first node that wanted something else, or none.
    """
    return apart.told_as_failure(lambda: _replayed(asked))


def _replayed(asked: dict[str, Any]) -> bytes:
    case = Case(**asked["case"])
    # Before any fork: what its module keeps begins alike in each of them.
    make = apart.maker(case, Guard(SEALED))
    nodes: list[tuple[Given, list[Any], list[bytes]]] = pickle.loads(asked["nodes"])
    for given, answers, wanted in nodes:
        problem = _alone(make, asked["options"], given, answers, wanted)
        if problem is not None:
            return pickle.dumps({"problem": f"node {given.me}: {problem}"})
    return pickle.dumps({"problem": None})


def _alone(
    make: Callable[..., Optimiser],
    options: Mapping[str, Any],
    given: Given,
    answers: Sequence[Any],
    wanted: Sequence[bytes],
) -> str | None:
    """Run one node in a fork of its own, and return where it wants something else."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "its process alone died"
        try:
            said = _again(make, options, given, answers, wanted) or ""
        except Exception as error:
            said = f"alone it fails: {type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode()[:4000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        found = file.read().decode()
    os.waitpid(pid, 0)
    return found or None


def _again(
    make: Callable[..., Optimiser],
    options: Mapping[str, Any],
    given: Given,
    answers: Sequence[Any],
    wanted: Sequence[bytes],
) -> str | None:
    return apart.where_apart(make(**options).run(given), answers, wanted, _as_told)


def _as_told(answer: Any) -> Any:
    if isinstance(answer, api.Message):
        for part in answer.parts:
            part.flags.writeable = False
        return answer
    return fixed(answer)
