"""Whether a run says something of the server, or of the client that was too slow for it.

A run of which no call has a whole answer says nothing of the server's speed either, whoever is to blame.

Limits are the protocol's: a 99th percentile of lateness of at most 5 % of the median time to first token, a rate within
1 % of the asked one, at least 95 % of the asked concurrency. In a closed loop of sessions a place is empty of calls
while its user thinks: there no concurrency is asked for. Poisson arrivals are tested as they were sent: gaps against
the exponential distribution (Kolmogorov-Smirnov), their first autocorrelation, and the index of dispersion of counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.base.counting import number_of
from paceline.families.serving.core.load.log.entries import Log
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, percentile

MAX_LATENESS_SHARE = 0.05
MAX_RATE_ERROR = 0.01
MIN_CONCURRENCY_SHARE = 0.95
MAX_CPU_SHARE = 0.9
MIN_TESTED = 200
"""Arrivals below which a test of their distribution says nothing."""
LEAST_LATENESS_S = 0.001
"""Lateness that is let pass whatever the server needs: what a machine's scheduler does."""
SAYS_NOTHING = "the run says nothing of the server: "
"""How the reason of a launch begins that its certificate refuses."""
NO_CALLS, NO_ANSWERS = "there are no calls", "no call of"
"""How problems begin that are not the client's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTest:
    """What sent arrivals look like."""

    num_gaps: int
    variation: float
    """Coefficient of variation of gaps: 0 for constant arrivals, 1 for Poisson."""
    autocorrelation: float
    """Of neighbouring gaps."""
    dispersion: float
    """Variance over mean of the number of arrivals in windows of ten mean gaps; 1 for Poisson."""
    exponential_p: float
    """Probability of such a distance to exponential gaps, or a larger one, if they are exponential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What the client says of itself, and what follows from it."""

    sent: int
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    lag_p99_s: float
    """Of the event loop."""
    lag_max_s: float
    cpu_share: float
    """Of one core, of the busiest process."""
    cpu_per_call_s: float
    urgent: bool
    """Whether all its processes ran before ordinary ones."""
    loop: str
    """Event loop of its processes."""
    asked_rate_per_s: float | None
    """None in a closed loop."""
    sent_rate_per_s: float | None
    asked_concurrency: int | None
    mean_concurrency: float | None
    arrivals: ArrivalTest | None
    """None where there are too few."""
    problems: tuple[str, ...]
    """Why the run is invalid; empty if it is not."""

    @property
    def valid(self) -> bool:
        """Return whether the client did what it was asked for, and some call has a whole answer."""
        return not self.problems

    def facts(self) -> dict[str, Any]:
        """Return it as a record keeps it."""
        return {**asdict(self), "valid": self.valid, "problems": list(self.problems)}


def blames_client(reason: str | None) -> bool:
    """Tell whether a launch was refused for its client alone, as a busy machine's is; its calls were answered."""
    _, found, problems = (reason or "").partition(SAYS_NOTHING)
    return bool(found) and not problems.startswith((NO_CALLS, NO_ANSWERS))


def certify(log: Log, outcomes: Sequence[Outcome]) -> Certificate:
    """Judge the client by its log."""
    due = [o for o in outcomes if o.due_s is not None and o.sent_s is not None]
    late = [o.sent_s - o.due_s for o in due if o.sent_s is not None and o.due_s is not None]
    # The bell hangs on the same loop as the calls: how late it is, everything there is.
    lags = [lag for p in log.processes for lag in p.lags_s] or [0.0]
    places = log.header.get("concurrency")
    capped = log.header.get("cap") is not None
    asked, sent = _rates(due) if places is None else (None, None)
    late_p99 = percentile(late, 0.99)
    wall_s = max((p.wall_s for p in log.processes), default=0.0)
    cpu_share = max((p.cpu_s / p.wall_s for p in log.processes if p.wall_s > 0), default=0.0)
    held = _mean_concurrency(due) if places is not None else None
    failing = _failing_share(due) > 1 - MIN_CONCURRENCY_SHARE
    # A place of a closed loop is a session's while its user thinks, and carries several branches of a workflow.
    following = places is not None and bool(log.header.get("following"))
    problems = _unanswered(outcomes)
    first = percentile([o.ttft_s for o in due], 0.5)
    # With a cap calls wait in the client by design; that time is in their latency and no fault of the client's.
    if late_p99 is not None and first is not None and not capped:
        problems += _lateness(late_p99, first)
    if asked and sent and not capped:
        problems += _rate_error(asked, sent, gaps=len(due) - 1, first_s=first or 0.0)
    # Calls that are refused end at once, so that no client could keep their places taken.
    least = 0.0 if places is None or following or failing else MIN_CONCURRENCY_SHARE * places
    if held is not None and held < least:
        problems.append(
            f"{number_of(held, 'call was', 'calls were', form='.1f')} under way in the mean instead of {places}"
        )
    # Of the busiest process: one thread that is nearly always busy queues events, whatever the others do.
    if cpu_share > MAX_CPU_SHARE:
        problems.append(f"the client's event loop had {cpu_share:.0%} of a core: it is the bottleneck")
    return Certificate(
        sent=len(due),
        lateness_p50_s=percentile(late, 0.5),
        lateness_p99_s=late_p99,
        lag_p99_s=float(np.quantile(lags, 0.99)),
        lag_max_s=max(lags),
        cpu_share=cpu_share,
        cpu_per_call_s=sum(p.cpu_s for p in log.processes) / max(len(due), 1) if wall_s else 0.0,
        loop=" ".join(sorted({p.loop for p in log.processes})),
        urgent=bool(log.processes) and all(p.urgent for p in log.processes),
        asked_rate_per_s=asked,
        sent_rate_per_s=sent,
        asked_concurrency=places,
        mean_concurrency=held,
        arrivals=arrival_test(sorted(o.sent_s for o in due if o.sent_s is not None)) if asked else None,
        problems=tuple(problems),
    )


def _unanswered(outcomes: Sequence[Outcome]) -> list[str]:
    """Say that no call has a whole answer, with what became of them, if that is so."""
    if any(o.ok for o in outcomes):
        return []
    if not outcomes:
        return [NO_CALLS]
    became = ", ".join(f"{kind} {number}" for kind, number in counts(outcomes).items())
    example = next((f"; the first: {o.detail}" for o in outcomes if o.detail), "")
    return [f"{NO_ANSWERS} {len(outcomes)} has a whole answer: {became}{example}"]


def _rates(due: Sequence[Outcome]) -> tuple[float | None, float | None]:
    """Return asked and sent calls a second, both over their own first and last instant."""
    rates: list[float | None] = []
    for instants in ([o.due_s for o in due], [o.sent_s for o in due]):
        known = sorted(i for i in instants if i is not None)
        span_s = known[-1] - known[0] if len(known) > 1 else 0.0
        rates.append((len(known) - 1) / span_s if span_s > 0 else None)
    return rates[0], rates[1]


def _allowed_lateness_s(first_s: float) -> float:
    return max(MAX_LATENESS_SHARE * first_s, LEAST_LATENESS_S)


def _rate_error(asked: float, sent: float, *, gaps: int, first_s: float) -> list[str]:
    """Say that the rate was another one than asked for, if it was.

    A call at either end may be as late as any call may be; in a short run that alone is more than the rate's error.
    """
    asked_s, sent_s = gaps / asked, gaps / sent
    explained = abs(sent_s - asked_s) <= _allowed_lateness_s(first_s)
    if explained or abs(sent / asked - 1) <= MAX_RATE_ERROR:
        return []
    return [f"{number_of(sent, 'call', form='.1f')}/s were sent instead of {asked:.1f}"]


def _lateness(worst_s: float, first_s: float) -> list[str]:
    """Say that calls were sent too late beside the median time to first token, if they were."""
    allowed_s = _allowed_lateness_s(first_s)
    if worst_s <= allowed_s:
        return []
    of = "5 % of the median time to first token"
    return [f"calls were sent up to {worst_s * 1e3:.2f} ms late (p99); {allowed_s * 1e3:.2f} ms is {of}"]


def _failing_share(due: Sequence[Outcome]) -> float:
    """Return the share of failed calls among those that were sent before the last whole answer ended."""
    last_s = max((o.ended_s for o in due if o.ok and o.ended_s is not None), default=0.0)
    sent = [o for o in due if o.sent_s is not None and o.sent_s < last_s]
    return sum(not o.ok for o in sent) / max(len(sent), 1)


def _mean_concurrency(due: Sequence[Outcome]) -> float | None:
    """Return the mean number under way between the first and the last sending, and not behind the last whole answer.

    A server that is gone ends calls at once, so that no client could keep places taken.
    """
    sent = sorted(o.sent_s for o in due if o.sent_s is not None)
    last_s = max((o.ended_s for o in due if o.ok and o.ended_s is not None), default=0.0)
    if len(sent) < 2 or min(sent[-1], last_s) <= sent[0]:
        return None
    begin, end = sent[0], min(sent[-1], last_s)
    held = sum(
        max(0.0, min(o.ended_s if o.ended_s is not None else end, end) - o.sent_s)
        for o in due
        if o.sent_s is not None
    )
    return held / (end - begin)


def arrival_test(instants_s: Sequence[float]) -> ArrivalTest | None:
    """Describe the gaps of ascending instants; None where there are fewer than ``MIN_TESTED``."""
    instants = np.asarray(instants_s, dtype=np.float64)
    if len(instants) <= MIN_TESTED:
        return None
    gaps = np.diff(instants)
    mean = float(gaps.mean())
    centred = gaps - mean
    spread = float((centred**2).mean())
    neighbours = float((centred[1:] * centred[:-1]).mean()) / spread if spread > 0 else 0.0
    # Ten gaps a window: short enough for many windows, long enough that bursts show as variance of counts.
    edges = np.arange(instants[0], instants[-1], 10.0 * mean)
    numbers = np.histogram(instants, edges)[0]
    return ArrivalTest(
        num_gaps=len(gaps),
        variation=math.sqrt(spread) / mean,
        autocorrelation=neighbours,
        dispersion=float(numbers.var(ddof=1) / numbers.mean()),
        exponential_p=_exponential_p(gaps / mean),
    )


def _exponential_p(gaps: NDArray[np.float64]) -> float:
    """Return the p value of Kolmogorov and Smirnov's test for exponential gaps whose mean was taken from them.

    The mean is an estimate, so that the distance is smaller than the plain test expects; Stephens' modification for
    that case (EDF Statistics for Goodness of Fit, 1974, table 1.3) is used with its tabulated points, between which the
    logarithm of p is interpolated.
    """
    ordered = np.sort(gaps)
    n = len(ordered)
    # Gaps are in units of their mean, so this is the distribution with nothing left to fit.
    below = 1.0 - np.exp(-ordered)
    ranks = np.arange(1, n + 1)
    distance = float(max((ranks / n - below).max(), (below - (ranks - 1) / n).max()))
    modified = (distance - 0.2 / n) * (math.sqrt(n) + 0.26 + 0.5 / math.sqrt(n))
    points = ((0.926, 0.15), (0.990, 0.10), (1.094, 0.05), (1.190, 0.025), (1.308, 0.01))
    if modified <= points[0][0]:
        return 0.15  # or more: the table ends here
    for (low, p_low), (high, p_high) in itertools.pairwise(points):
        if modified <= high:
            share = (modified - low) / (high - low)
            return float(math.exp(math.log(p_low) + share * (math.log(p_high) - math.log(p_low))))
    # Beyond the table by the test's asymptotic tail, exp(−2 d²), joined at its last point.
    return float(0.01 * math.exp(-2.0 * (modified**2 - points[-1][0] ** 2)))
