"""The contract of techniques that sum gradients over workers which straggle. Free of torch.

A technique is the master. Its ``run`` is a generator: it yields what it wants, and is resumed with the answer. All data
are cut into chunks, of which it states the shares. In every round each worker gets tasks, a task being a linear
combination of chunks' gradients at the weights of one job; what arrives before the master ends the round is kept, the
rest is lost. A job's sum of all chunks' gradients is delivered as a linear combination of results that have arrived.

Jobs are the steps of ``delay`` + 1 models that take turns: job t begins where job t − ``delay`` − 1 left its model, so
that one must have been delivered before.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.base.techniques.technique import UnsupportedError

__all__ = [
    "Array",
    "Arrival",
    "Assign",
    "Bursts",
    "Deliver",
    "End",
    "Given",
    "Master",
    "Plan",
    "Request",
    "Result",
    "Run",
    "Task",
    "UnsupportedError",
    "Wait",
    "cyclic_code",
    "decoding",
    "waited",
]

Array = npt.NDArray[np.float64]
Result = tuple[int, int, int]
"""Round, worker, and place among the worker's tasks of that round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the master is told before it starts."""

    workers: int
    jobs: int
    seed: int
    """For codes that are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the master says of itself."""

    shares: tuple[float, ...]
    """Share of all data of each chunk; they sum to one."""
    delay: int
    """T: job t, which begins in round t, is delivered in round t + T at the latest."""


@dataclass(frozen=True, slots=True)
class Task:
    """A linear combination of chunks' gradients at the weights of a job."""

    job: int
    chunks: tuple[int, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Begin a round: each worker gets its tasks, perhaps none. Answered by the instant, a float."""

    tasks: tuple[tuple[Task, ...], ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the next worker of the round; answered by an ``Arrival``, or None at ``until_s`` or when all are in."""

    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class End:
    """End the round: what has not arrived is lost. Answered by the instant."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """State a job's sum of gradients as a combination of results; answered by None."""

    job: int
    results: tuple[Result, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A worker's results have come, all of a round at once."""

    worker: int
    at_s: float


Request = Assign | Wait | End | Deliver
Run = Generator[Request, Any, Any]


class Master(Protocol):
    """A technique of ``coded_gradients``."""

    def plan(self, given: Given) -> Plan:
        """Return chunks and delay."""

    def run(self, given: Given) -> Run:
        """Be the master, until all jobs are delivered."""


def cyclic_code(workers: int, stragglers: int, seed: int) -> Array:
    """Return a code, (workers, workers), that any ``workers`` − ``stragglers`` of its rows decode.

    Row i combines chunks i, i + 1, …, i + ``stragglers``, counted round (Tandon et al., 2017, "Gradient Coding",
    algorithm 2): rows lie in the null space of a drawn matrix, and so does the vector of ones.
    """
    if not 0 <= stragglers < workers:
        raise UnsupportedError(f"{stragglers} stragglers of {workers} workers leave nobody to decode from")
    code: Array = np.eye(workers, dtype=np.float64)
    if not stragglers:
        return code
    drawn = np.random.default_rng(seed).standard_normal((stragglers, workers))
    drawn[:, -1] = -drawn[:, :-1].sum(axis=1)
    for row in range(workers):
        chunks = (row + np.arange(stragglers + 1)) % workers
        rest = np.linalg.solve(drawn[:, chunks[1:]], -drawn[:, chunks[0]])
        code[row, chunks] = np.concatenate([[1.0], rest])
    return code


def decoding(code: Array, rows: list[int]) -> Array:
    """Return the weights of some rows of a code whose sum is the vector of ones, (len(rows),)."""
    return np.asarray(np.linalg.lstsq(code[rows].T, np.ones(code.shape[1]), rcond=None)[0], dtype=np.float64)


@dataclass(slots=True, kw_only=True)
class Bursts:
    """Stragglers that come in bursts: at most ``most`` workers in any ``window`` rounds, each for at most ``burst``.

    Attributes:
        lost: Of each round that has ended, who did not come.
    """

    burst: int
    window: int
    most: int
    lost: list[frozenset[int]] = field(default_factory=list)

    def fit(self, away: Collection[int]) -> bool:
        """Return whether a round that ends without some workers leaves all windows within the bounds."""
        now = len(self.lost)
        begin = max(0, now + 1 - self.window)
        seen = frozenset[int]().union(*self.lost[begin:now])
        earlier = frozenset[int]().union(*self.lost[begin : max(0, now + 1 - self.burst)])
        return len(seen | set(away)) <= self.most and not earlier & set(away)


def waited(
    begun_s: float, workers: Collection[int], patience: float, bursts: Bursts
) -> Generator[Request, Any, set[int]]:
    """Wait for a round's workers, end it, and return who came.

    Whoever is away ``patience`` of the fastest worker's time after that one came is left behind, where that fits the
    bursts; otherwise all are waited for.

    Args:
        begun_s: Instant at which the round began.
        workers: Who was given tasks.
        patience: Over the fastest worker's time.
        bursts: What may be left behind; it is not told who was.
    """
    arrival = yield Wait()
    came = {arrival.worker}
    until_s = arrival.at_s + patience * (arrival.at_s - begun_s)
    while len(came) < len(workers):
        arrival = yield Wait(until_s)
        if arrival is None:
            break
        came.add(arrival.worker)
    if not bursts.fit(set(workers) - came):
        while len(came) < len(workers):
            arrival = yield Wait()
            came.add(arrival.worker)
    yield End()
    return came
