"""SR-SGC: gradient coding for fewer stragglers than there are, whose missing results are asked for again later.

Krishnan et al., 2023, "Sequential Gradient Coding For Straggler Mitigation" (ICLR), the scheme with
selective repetition.

Algorithm (n workers; stragglers come in bursts of B rounds at most, λ of them in any W rounds; W − 1 is a multiple of
B; s = ⌈B·λ/(W − 1 + B)⌉):
1. In round t workers do their task of job t in an (n, s) gradient code. Where more than s, v, did not send theirs for
   job t − B, the first v − s of those do that task instead.
2. The round ends ``patience`` of the fastest worker's time after it came, if who is missing then fits the bursts (or is
   no more than s in a round that repeats nothing); otherwise when all are in.
3. Job t − B is decoded from n − s results of rounds t − B and t.

Load of a worker in a round: (s + 1)/n of all data, where gradient coding needs (λ + 1)/n against the same stragglers.
Delay: B rounds. Rounds after the last job repeat what is missing, and nothing else.
"""

from __future__ import annotations

import math

from paceline import technique
from paceline.families.training.api.coding import (
    Assign,
    Bursts,
    Deliver,
    End,
    Given,
    Plan,
    Run,
    Task,
    UnsupportedError,
    cyclic_code,
    decoding,
    waited,
)


@technique(
    name="sr-sgc",
    family="training",
    implements=("coded_gradients",),
    summary="gradient coding whose missing results are asked for again a burst later",
    paper="sequential-gradient-coding",
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract",
            "code": "github.com/mamaj/Sequential-Gradient-Coding: selective_repeat_sgc.py",
        },
        "deviations": (
            "Rounds after the last job ask only those again whose results are missing; the authors' ask all.",
            "A round that all workers have come to ends then, and not after the patience.",
        ),
        "constants": {
            "burst": {"here": 1, "authors": "swept (B)"},
            "window": {"here": 2, "authors": "swept (W)"},
            "stragglers": {"here": 2, "authors": "swept (lambda)"},
            "patience": {"here": 0.3, "authors": "an argument without a default (mu)"},
        },
        "checked_by": (
            "tests/unit/test_coded_gradients.py::test_loads_are_those_of_the_paper",
            "tests/unit/test_coded_gradients.py::test_who_did_not_send_is_asked_again_a_burst_later",
        ),
    },
)
class SelectiveRepetition:
    """Repeat what more workers than s have not sent.

    Args:
        burst: B, the longest burst of a straggler, in rounds.
        window: W, the rounds in which λ workers may straggle.
        stragglers: λ.
        patience: μ, how long to wait after the fastest worker, over its time.
    """

    def __init__(
        self, *, burst: int = 1, window: int = 2, stragglers: int = 2, patience: float = 0.3
    ) -> None:
        if (window - 1) % burst or window <= burst:
            raise UnsupportedError(f"window - 1 = {window - 1} must be a multiple of burst = {burst}")
        self.burst, self.window, self.most, self.patience = burst, window, stragglers, patience
        self.coded = math.ceil(burst * stragglers / (window - 1 + burst))
        """s."""

    def plan(self, given: Given) -> Plan:
        """Return n equal chunks, and the delay of a burst."""
        return Plan(shares=(1 / given.workers,) * given.workers, delay=self.burst)

    def run(self, given: Given) -> Run:
        """Assign jobs and repetitions, wait as the bursts allow, and decode."""
        n, s = given.workers, self.coded
        code = cyclic_code(n, s, given.seed)
        chunks = [tuple(int((i + k) % n) for k in range(s + 1)) for i in range(n)]
        rows = [tuple(float(code[i, c]) for c in chunks[i]) for i in range(n)]
        bursts = Bursts(burst=self.burst, window=self.window, most=self.most)
        sent: list[dict[int, int]] = [{} for _ in range(given.jobs)]
        """Of each job the round in which each worker's result came."""
        for number in range(given.jobs + self.burst):
            old = number - self.burst
            missing = [i for i in range(n) if i not in sent[old]] if old >= 0 else []
            repeated = missing[: max(len(missing) - s, 0)]
            jobs = dict.fromkeys(range(n), number) if number < given.jobs else {}
            jobs |= dict.fromkeys(repeated, old)
            tasks = ((Task(jobs[i], chunks[i], rows[i]),) if i in jobs else () for i in range(n))
            begun_s = yield Assign(tuple(tasks))
            came = (yield from waited(begun_s, jobs, self.patience, bursts)) if jobs else set()
            if not jobs:
                yield End()
            away = frozenset(jobs) - came
            # What the code itself bears costs nothing later, and is no burst.
            bursts.lost.append(frozenset() if not repeated and len(away) <= s else away)
            for i in came:
                sent[jobs[i]][i] = number
            if old >= 0:
                got = sorted(sent[old])
                weights = tuple(float(w) for w in decoding(code, got))
                yield Deliver(old, tuple((sent[old][i], i, 0) for i in got), weights)
