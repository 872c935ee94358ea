"""The processes in which estimators of ``influence`` run: one that answers them, and one where they are alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from paceline.families.training.api import influence as api
from paceline.families.training.api.influence import (
    Array,
    Displacement,
    Estimate,
    Estimator,
    HessianProduct,
    Run,
    TestGradient,
)
from paceline.families.training.core import apart
from paceline.families.training.core.apart import RefusedError
from paceline.families.training.core.planning import graphs
from paceline.families.training.ops.influence import gossip
from paceline.families.training.ops.influence.gossip import Gossip
from paceline.worker.fences.guard import Guard
from paceline.worker.ranks.session import Case

SEALED = (api, apart, gossip, graphs, np.random, np.linalg, pickle)
MOST_REQUESTS = 1_000_000


class Replies:
    """Answers an estimator, and keeps what it was told and what it wanted.

    Args:
        run: The peers' run.
    """

    def __init__(self, run: Gossip) -> None:
        self._gossip = run
        self.answers: list[Any] = []
        self.wanted: list[bytes] = []
        self.estimates: dict[int, Array] = {}
        self.queries = 0

    def serve(self, run: Run) -> None:
        """Answer until the generator ends.

        Raises:
            RefusedError: It wanted what it may not have.
        """
        answer: Any = None
        while True:
            try:
                request = run.send(answer)
            except StopIteration:
                self.wanted.append(b"end")
                return
            if not isinstance(request, Displacement | TestGradient | HessianProduct | Estimate):
                raise RefusedError(
                    f"an estimator wants what its contract lists, not {type(request).__name__}"
                )
            if len(self.wanted) >= MOST_REQUESTS:
                raise RefusedError(f"it has asked {MOST_REQUESTS} times")
            self.wanted.append(apart.digest(request))
            answer = None
            if isinstance(request, Estimate):
                self._take(request)
            else:
                answer = self._answered(request)
                answer.flags.writeable = False
            self.answers.append(answer)

    def _answered(self, request: Displacement | TestGradient | HessianProduct) -> Array:
        peers, steps = len(self._gossip.shares), len(self._gossip.displacements)
        if not (0 <= request.peer < peers and 0 <= request.step < steps):
            raise RefusedError(f"there is no peer {request.peer} in step {request.step}")
        if isinstance(request, Displacement):
            return np.array(self._gossip.displacements[request.step, request.peer])
        self.queries += 1
        if isinstance(request, TestGradient):
            return self._gossip.test_gradient(request.peer, request.step)
        vector = np.asarray(request.vector, dtype=np.float64)
        if vector.shape != self._gossip.weights.shape[2:]:
            raise RefusedError(
                f"a vector has {self._gossip.weights.shape[2]} numbers, not shape {vector.shape}"
            )
        return self._gossip.hessian_product(request.peer, request.step, vector)

    def _take(self, request: Estimate) -> None:
        influence = np.asarray(request.influence, dtype=np.float64)
        if request.step not in self._gossip.asked or request.step in self.estimates:
            raise RefusedError(f"step {request.step} is not asked for, or is stated already")
        if influence.shape != self._gossip.shares.shape or not np.isfinite(influence).all():
            raise RefusedError(f"the influence of {len(self._gossip.shares)} peers is as many finite numbers")
        self.estimates[request.step] = influence.copy()


def play(asked: dict[str, Any]) -> bytes:
    """Let an estimator work.

    Args:
        asked: ``case``, ``params``, ``seed`` and ``uneven``.

    Returns:
        Its estimates, what it asked, and what it was told.
    """
    return apart.told_as_failure(lambda: _played(asked))


def _played(asked: dict[str, Any]) -> bytes:
    case, seed = Case(**asked["case"]), int(asked["seed"])
    guard = Guard(SEALED)
    make = apart.maker(case, guard)
    run = Gossip(asked["params"], seed, uneven=asked["uneven"])
    replies = Replies(run)
    given = run.given(seed + 1)
    with guard.watch():
        estimator: Estimator = make(**case.options)
        replies.serve(estimator.run(given))
    guard.check()
    found = {
        "estimates": replies.estimates,
        "queries": replies.queries,
        "given": run.given(seed + 1),
        "answers": replies.answers,
        "wanted": replies.wanted,
    }
    return pickle.dumps(found)


def replay(asked: dict[str, Any]) -> bytes:
    """Run an estimator again, in a process that has drawn no peers.

    Args:
        asked: ``case``, ``given``, ``answers`` and ``wanted``.

    Returns:
        A sentence where it wants something else, or none.
    """
    return apart.told_as_failure(lambda: _replayed(asked))


def _replayed(asked: dict[str, Any]) -> bytes:
    case = Case(**asked["case"])
    make = apart.maker(case, Guard(SEALED))
    estimator: Estimator = make(**case.options)
    problem = apart.where_apart(estimator.run(asked["given"]), asked["answers"], asked["wanted"])
    return pickle.dumps({"problem": problem})
