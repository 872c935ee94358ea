"""Timers of PyTorch and Triton beside ours, in the same rounds and the same process; only calibration asks for them.

``torch.utils.benchmark.Timer`` repeats one statement on one set of arguments and divides; its figure is the median
over such blocks. Each observation here is one block, as ``blocked_autorange`` takes them. ``triton.testing.do_bench``
empties the second-level cache before each of its calls; each observation is one median of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paceline.families.kernels.core.candidate import Candidate
from paceline.worker.ranks.session import CaseError
from paceline.worker.timing.interleaved import Observation, relative_half_width

_perf_ns = time.perf_counter_ns

BLOCK_S = 0.002
INTERVAL = 0.01
"""The relative half-width of the median's interval that both have to reach."""
METRICS: Mapping[str, str] = {"torch-benchmark": "torch_benchmark_s", "do-bench": "do_bench_s"}
"""The metric of each timer."""


class ReferenceTimer:
    """Times a technique with another tool's timer."""

    def __init__(self, candidate: Candidate, timer: str) -> None:
        self.label = f"{candidate.label} by {timer}"
        self.costs_s: list[float] = []
        self._candidate = candidate
        self._message = {
            "do": "benchmark",
            "timer": timer,
            # Calls of a block by the technique's trial, so that a block lasts as long as one of ours.
            "number": max(int(BLOCK_S / max(candidate.trial_s, 1e-9)), 1),
        }

    def observe(self) -> Observation:
        """Time one block; return the seconds of one call."""
        if self._candidate.failure is not None:
            # It keeps its turn, so that the others' rounds stay what they are; the failure is told afterwards.
            return 1e-9, 0
        start = _perf_ns()
        try:
            reply = self._candidate.process.ask(self._message, timeout_s=self._candidate.point.timeout_s)
        except CaseError as error:
            self._candidate.failure = error
            return 1e-9, 0
        self.costs_s.append((_perf_ns() - start) * 1e-9)
        return float(reply["seconds"]), 0


def seconds_to_interval(samples: Sequence[float], costs_s: Sequence[float]) -> dict[str, float | bool]:
    """Return what it cost until the median was known to one per cent, or all that was spent without reaching it.

    Args:
        samples: In the order in which they were taken.
        costs_s: Seconds that each observation took, warm-up observations first.
    """
    own = costs_s[len(costs_s) - len(samples) :]
    # Below six samples no order-statistic interval of a median reaches 95 %.
    for count in range(6, len(samples) + 1):
        if relative_half_width(samples[:count]) <= INTERVAL:
            return {"seconds": sum(own[:count]), "reached": True}
    return {"seconds": sum(own), "reached": False}
