"""Gradient coding: every worker sends one combination of several chunks' gradients, and any n − s of them are enough.

Tandon et al., 2017, "Gradient Coding: Avoiding Stragglers in Distributed Learning" (ICML).

Algorithm, of round t, which is job t (n: workers, s: ``stragglers``):
1. Worker i goes through chunks i, …, i + s of n equal ones, and sends the combination of its row of a code.
2. The round ends as soon as n − s workers are in: the row of ones is a combination of any n − s rows.

Load of a worker in a round: (s + 1)/n of all data. Without stragglers to bear (s = 0) it is plain data parallelism,
which waits for all.
Limits: codes are drawn; how well they are conditioned falls with n, so that n is some dozens at most.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.coding import (
    Assign,
    Deliver,
    End,
    Given,
    Plan,
    Run,
    Task,
    Wait,
    cyclic_code,
    decoding,
)


@technique(
    name="gradient-coding",
    family="training",
    implements=("coded_gradients",),
    summary="coded sums of several chunks' gradients, of which any n − s are enough",
    fidelity={
        "source": {
            "read": "reimplementation",
            "paper": "algorithm 2 by the header, not read for this card",
            "code": "github.com/mamaj/Sequential-Gradient-Coding: gradient_coding.py",
        },
        "deviations": (
            "A round ends as soon as n − s workers are in; that code waits a while after the first, and for all where "
            "s or more are missing.",
        ),
        "constants": {"stragglers": {"here": 0, "authors": "swept"}},
        "checked_by": (
            "tests/unit/test_coded_gradients.py::test_any_rows_but_the_stragglers_decode",
            "tests/unit/test_coded_gradients.py::test_a_round_of_gradient_coding_ends_with_the_worker_that_completes_it",
        ),
    },
)
class GradientCoding:
    """One job a round, decoded at once.

    Args:
        stragglers: s, how many workers of a round may stay away.
    """

    def __init__(self, *, stragglers: int = 0) -> None:
        self.stragglers = stragglers

    def plan(self, given: Given) -> Plan:
        """Return n equal chunks, and no delay."""
        return Plan(shares=(1 / given.workers,) * given.workers, delay=0)

    def run(self, given: Given) -> Run:
        """Assign, wait for enough, and decode."""
        n, s = given.workers, self.stragglers
        code = cyclic_code(n, s, given.seed)
        chunks = [tuple(int((i + k) % n) for k in range(s + 1)) for i in range(n)]
        rows = [tuple(float(code[i, c]) for c in chunks[i]) for i in range(n)]
        for job in range(given.jobs):
            yield Assign(tuple((Task(job, chunks[i], rows[i]),) for i in range(n)))
            came: list[int] = []
            while len(came) < n - s:
                arrival = yield Wait()
                came.append(arrival.worker)
            yield End()
            weights = decoding(code, came)
            yield Deliver(job, tuple((job, i, 0) for i in came), tuple(float(w) for w in weights))
