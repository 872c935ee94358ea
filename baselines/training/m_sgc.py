"""M-SGC: each worker sends most of its results as they are, and codes only what stands in for what stragglers lose.

Krishnan et al., 2023, "Sequential Gradient Coding For Straggler Mitigation" (ICLR), the multiplexed
scheme.

Algorithm (n workers; stragglers come in bursts of B rounds at most, λ < n of them in any W > B rounds). Data are cut
into n·(W − 1) chunks of λ + 1 parts, W − 1 for each worker alone, and B groups of n chunks of one part:
1. In round t a worker has a task of each of the jobs t, t − 1, …, t − (W − 2 + B). For the newest W − 1 of them it is
   the worker's next own chunk. For the older ones it is, where all its own chunks of that job have arrived, the
   worker's combination of a group's chunks in an (n, λ) gradient code, a group for each round; otherwise an own chunk
   that has not arrived.
2. The round ends ``patience`` of the fastest worker's time after it came, if who is missing then fits the bursts;
   otherwise when all are in.
3. Job t − (W − 2 + B) is the sum of all own chunks, and of the groups, each decoded from n − λ combinations.

Load of a worker in a round: (λ + 1)·(W − 1 + B)/(n·(B + (W − 1)·(λ + 1))) of all data. Delay: W − 2 + B rounds.
Limits: with λ = n no group would be coded; that case is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline import technique
from paceline.families.training.api.coding import (
    Array,
    Assign,
    Bursts,
    Deliver,
    Given,
    Plan,
    Result,
    Run,
    Task,
    UnsupportedError,
    cyclic_code,
    decoding,
    waited,
)


@technique(
    name="m-sgc",
    family="training",
    implements=("coded_gradients",),
    summary="own chunks as they are, repeated where they were lost, and coded chunks for who lost none",
    paper="sequential-gradient-coding",
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract",
            "code": "github.com/mamaj/Sequential-Gradient-Coding: multiplexed_sgc.py",
        },
        "deviations": (
            "With λ = n, which needs no code, it is refused; the authors have a formula of the load for it.",
            "A round that all workers have come to ends then, and not after the patience.",
            "In rounds after the last job workers have the tasks that are left, and no others.",
        ),
        "constants": {
            "burst": {"here": 1, "authors": "swept (B)"},
            "window": {"here": 2, "authors": "swept (W)"},
            "stragglers": {"here": 2, "authors": "swept (lambda)"},
            "patience": {"here": 0.3, "authors": "an argument without a default (mu)"},
        },
        "checked_by": (
            "tests/unit/test_coded_gradients.py::test_loads_are_those_of_the_paper",
            "tests/unit/test_coded_gradients.py::test_a_lost_chunk_is_repeated_and_codes_are_for_who_lost_none",
        ),
    },
)
class MultiplexedCoding:
    """Own chunks, repetitions and codes side by side.

    Args:
        burst: B, the longest burst of a straggler, in rounds.
        window: W, the rounds in which λ workers may straggle.
        stragglers: λ.
        patience: μ, how long to wait after the fastest worker, over its time.
    """

    def __init__(
        self, *, burst: int = 1, window: int = 2, stragglers: int = 2, patience: float = 0.3
    ) -> None:
        if not 0 < burst < window:
            raise UnsupportedError(f"a burst of {burst} rounds must be shorter than the window of {window}")
        self.burst, self.window, self.most, self.patience = burst, window, stragglers, patience
        self.own = window - 1
        """Own chunks of a worker in a job."""

    def plan(self, given: Given) -> Plan:
        """Return own chunks, worker by worker, and then the groups' chunks."""
        if not 0 < self.most < given.workers:
            raise UnsupportedError(
                f"{self.most} stragglers of {given.workers} workers: it is for fewer than all"
            )
        n = given.workers
        parts = [self.most + 1] * (n * self.own) + [1] * (n * self.burst)
        whole = sum(parts)
        return Plan(shares=tuple(p / whole for p in parts), delay=self.window - 2 + self.burst)

    def run(self, given: Given) -> Run:
        """Assign tasks of all open jobs, wait as the bursts allow, and decode the oldest."""
        n, delay = given.workers, self.window - 2 + self.burst
        code = cyclic_code(n, self.most, given.seed)
        bursts = Bursts(burst=self.burst, window=self.window, most=self.most)
        owned = [[_Came() for _ in range(n)] for _ in range(given.jobs)]
        """Of each job and worker, what has arrived."""
        for number in range(given.jobs + delay):
            jobs = [j for j in range(number, number - delay - 1, -1) if 0 <= j < given.jobs]
            tasks = [
                tuple(self._task(j, number - j, i, owned[j][i], code, n) for j in jobs) for i in range(n)
            ]
            begun_s = yield Assign(tuple(tasks))
            came = yield from waited(begun_s, range(n), self.patience, bursts)
            bursts.lost.append(frozenset(range(n)) - came)
            for i in came:
                for place, job in enumerate(jobs):
                    owned[job][i].keep(tasks[i][place], (number, i, place), self.own * n, n)
            if number >= delay:
                yield self._decoded(number - delay, owned[number - delay], code)

    def _task(self, job: int, age: int, worker: int, came: _Came, code: Array, n: int) -> Task:
        """Return a worker's task of a job that began ``age`` rounds ago."""
        left = [c for c in range(worker * self.own, (worker + 1) * self.own) if c not in came.chunks]
        if age < self.own:
            # Its turn, whether or not an earlier one was lost: that one is repeated in the place of a code.
            return Task(job, (worker * self.own + age,), (1.0,))
        if left:
            return Task(job, (left[0],), (1.0,))
        group = n * self.own + (age - self.own) * n
        columns = [int((worker + k) % n) for k in range(self.most + 1)]
        return Task(job, tuple(group + c for c in columns), tuple(float(code[worker, c]) for c in columns))

    def _decoded(self, job: int, came: Sequence[_Came], code: Array) -> Deliver:
        results = [r for c in came for r in c.chunks.values()]
        weights = [1.0] * len(results)
        n = len(came)
        for group in range(self.burst):
            begin = n * self.own + group * n
            rows = [i for i in range(n) if begin in came[i].groups]
            results += [came[i].groups[begin] for i in rows]
            weights += [float(w) for w in decoding(code, rows)]
        return Deliver(job, tuple(results), tuple(weights))


class _Came:
    """What has arrived of a worker for a job."""

    def __init__(self) -> None:
        self.chunks: dict[int, Result] = {}
        """Of its own chunks."""
        self.groups: dict[int, Result] = {}
        """Of combinations, by the first chunk of their groups."""

    def keep(self, task: Task, result: Result, own: int, size: int) -> None:
        """Take a result in; behind all workers' ``own`` chunks come groups of ``size``."""
        first = task.chunks[0]
        if first < own:
            self.chunks[first] = result
        else:
            self.groups[first - (first - own) % size] = result
