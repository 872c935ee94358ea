"""The load generator measured by itself: against servers whose truth is known, and one whose capacity is.

Every figure is an error against the truth, or a rate, of runs in real processes over real connections. A run of which
the client's certificate is invalid is not left out: its figure says so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from paceline.base.counting import number_of
from paceline.calibration.trials import Figure
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.findings.capacity import find_capacity
from paceline.families.serving.core.load.findings.certificate import Certificate, certify
from paceline.families.serving.core.load.log.outcomes import Outcome, gaps_s, outcomes_of, percentile
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.mock import Behaviour, Freeze, Gaps, MockServer
from paceline.stats.estimates import median

RUNS = 5
FIRST_S, GAP_S = 0.05, 0.01
HANDICAP_S = 0.007
"""A hundred times what receiving a piece costs."""
PLACES, SERVICE_S, LIMIT_S, TARGET = 4, 0.01, 0.02, 0.9

Run = tuple[tuple[Outcome, ...], Certificate]


def load_figures(progress: Callable[[str], None] = lambda name: None) -> list[Figure]:
    """Measure the load generator; three to four minutes.

    Args:
        progress: Called with the name of what is measured next.
    """
    figures: list[Figure] = []
    for part in (
        _errors,
        _open_loop,
        _closed_loop,
        _arrivals,
        _frozen,
        _stalled,
        _several,
        _slowed,
        _capacity,
    ):
        progress(part.__name__.strip("_").replace("_", " "))
        figures += part()
    return figures


def _go(
    behaviour: Behaviour,
    *,
    num: int,
    tokens: int,
    rate: float = 0.0,
    kind: str = "poisson",
    concurrency: int | None = None,
    cap: int | None = None,
    seed: int = 1,
    handicap_s: float = 0.0,
) -> Run:
    """Send calls to a mock server of its own."""
    if concurrency is not None:
        instants: Sequence[float | None] = [None] * num
    else:
        instants = [float(t) for t in draw_arrivals(kind, rate_per_s=rate, count=num, seed=seed)]
    calls = tuple(
        Call(number=n, prompt=(1, 2, 3), output_tokens=tokens, at_s=t) for n, t in enumerate(instants)
    )
    with MockServer(behaviour) as server:
        log = run_load(
            server.url,
            "mock",
            Workload(calls=calls, concurrency=concurrency, cap=cap),
            warm=concurrency or min(64, num),
            handicap_s=handicap_s,
        )
    outcomes = outcomes_of(log)
    return outcomes, certify(log, outcomes)


def _at_most(name: str, what: str, value: float, limit: float, unit: str, trials: int) -> Figure:
    return Figure(
        name=name,
        what=what,
        value=value,
        low=None,
        high=None,
        unit="s" if unit == "s" else "1/s" if unit == "1/s" else "ratio",
        limit=limit,
        reached=value <= limit,
        trials=trials,
    )


def _errors() -> list[Figure]:
    first: list[float] = []
    gaps: list[float] = []
    for seed in range(RUNS):
        outcomes, _ = _go(Behaviour(), num=40, tokens=16, rate=20, seed=seed)
        first.append(abs((percentile([o.ttft_s for o in outcomes], 0.5) or math.inf) - FIRST_S))
        found = gaps_s(outcomes)
        gaps.append(abs(sum(found) / len(found) - GAP_S))
    what = f"20 calls/s, 16 tokens; median of {RUNS} runs"
    return [
        _at_most("error of time to first token, p50", what, median(first), 1e-3, "s", RUNS),
        _at_most("error of mean gap", what, median(gaps), 5e-5, "s", RUNS),
    ]


def _open_loop() -> list[Figure]:
    outcomes, certificate = _go(Behaviour(), num=1500, tokens=16, rate=300)
    rates = (certificate.sent_rate_per_s or 0.0, certificate.asked_rate_per_s or math.inf)
    failed = sum(not o.ok for o in outcomes)
    what = f"300 calls/s, 16 tokens, 1500 calls, {failed} failed"
    return [
        _at_most("error of sent rate", what, abs(rates[0] / rates[1] - 1), 0.005, "ratio", 1500),
        _at_most("client's processor time a call", what, certificate.cpu_per_call_s, 5e-4, "s", 1500),
        _at_most("lateness of sending, p99", what, certificate.lateness_p99_s or math.inf, 1e-3, "s", 1500),
    ]


def _closed_loop() -> list[Figure]:
    quick = Behaviour(first=Gaps(mean_s=0.01), gap=Gaps(mean_s=0.002))
    outcomes, _ = _go(quick, num=6000, tokens=8, concurrency=64)
    ends = [o.ended_s for o in outcomes if o.ended_s is not None and o.ok]
    rate = len(ends) / max(ends) if ends else 0.0
    return [
        Figure(
            name="calls a second, closed loop",
            what="64 places, 8 tokens, one process of the client",
            value=rate,
            low=None,
            high=None,
            unit="1/s",
            limit=1000.0,
            reached=rate >= 1000.0,
            trials=6000,
        )
    ]


def _arrivals() -> list[Figure]:
    quick = Behaviour(first=Gaps(mean_s=0.005), gap=Gaps(mean_s=0.001))
    _, constant = _go(quick, num=600, tokens=2, rate=200, kind="constant")
    _, poisson = _go(quick, num=2200, tokens=2, rate=200, kind="poisson")
    assert constant.arrivals is not None
    assert poisson.arrivals is not None
    found = poisson.arrivals
    what = "2200 calls as they were sent"
    return [
        _at_most(
            "variation of constant gaps", "600 calls as sent", constant.arrivals.variation, 0.1, "ratio", 600
        ),
        _at_most("autocorrelation of Poisson gaps", what, abs(found.autocorrelation), 0.1, "ratio", 2200),
        _at_most("dispersion of Poisson counts, off 1", what, abs(found.dispersion - 1), 0.3, "ratio", 2200),
        Figure(
            name="p of exponential gaps",
            what=f"{what}; 0.15 is the table's end",
            value=found.exponential_p,
            low=None,
            high=None,
            unit="ratio",
            limit=0.01,
            reached=found.exponential_p > 0.01,
            trials=2200,
        ),
    ]


def frozen_truth(behaviour: Behaviour, instants: Sequence[float], cap: int, tokens: int) -> list[float]:
    """Return the times to first token of calls of which so many may be under way, in seconds."""
    free = [0.0] * cap
    found = []
    for at_s in instants:
        place = min(range(cap), key=free.__getitem__)
        sent_s = max(at_s, free[place])
        written = list(behaviour.tokens(behaviour.thawed_s(sent_s), tokens, random.Random(0)))
        free[place] = written[-1]
        found.append(written[0] - at_s)
    return found


def _frozen() -> list[Figure]:
    behaviour = Behaviour(
        first=Gaps(mean_s=0.02), gap=Gaps(mean_s=0.002), freezes=(Freeze(at_s=1.0, for_s=1.0),)
    )
    outcomes, _ = _go(behaviour, num=150, tokens=4, rate=50, kind="constant", cap=4)
    truth = percentile(frozen_truth(behaviour, [n / 50 for n in range(150)], 4, 4), 0.99) or math.inf
    seen = percentile([o.ttft_s for o in outcomes], 0.99) or 0.0
    what = f"a server frozen for 1 s, 4 calls at once: {truth:.3f} s is true"
    return [_at_most("error of p99 under a freeze", what, abs(seen / truth - 1), 0.05, "ratio", 150)]


def _stalled() -> list[Figure]:
    outcomes, _ = _go(Behaviour(stall_every=20, stall_s=0.1), num=40, tokens=41, rate=20)
    seen = percentile(gaps_s(outcomes), 0.99) or math.inf
    return [_at_most("error of p99 of gaps with stalls", "110 ms is true", abs(seen - 0.11), 0.002, "s", 40)]


def _several() -> list[Figure]:
    outcomes, _ = _go(Behaviour(tokens_per_chunk=4), num=40, tokens=16, rate=20)
    pace = median([o.pace_s for o in outcomes if o.pace_s is not None])
    return [_at_most("error of pace, 4 tokens an event", "10 ms is true", abs(pace - GAP_S), 1e-4, "s", 40)]


def _slowed() -> list[Figure]:
    _, certificate = _go(Behaviour(), num=600, tokens=16, rate=150, handicap_s=HANDICAP_S)
    what = certificate.problems[0] if certificate.problems else "it was certified"
    return [_at_most("slow clients that are certified", what, float(certificate.valid), 0.0, "ratio", 1)]


def erlang_capacity(places: int, service_s: float, limit_s: float, target: float) -> float:
    """Return the rate at which a share of an M/M/k queue's calls waits at most a limit (Erlang's C formula)."""

    def share(rate: float) -> float:
        load = rate * service_s
        if load >= places:
            return 0.0
        top = load**places / math.factorial(places) * places / (places - load)
        waits = top / (sum(load**k / math.factorial(k) for k in range(places)) + top)
        return 1.0 - waits * math.exp(-(places / service_s - rate) * limit_s)

    low, high = 0.0, places / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) >= target else (low, middle)
    return low


def _capacity() -> list[Figure]:
    """Search for the capacity of a queue whose service is exponential: first token at once, the second ends it."""
    behaviour = Behaviour(
        first=Gaps(mean_s=0.0), gap=Gaps(mean_s=SERVICE_S, kind="exponential"), places=PLACES
    )
    truth = erlang_capacity(PLACES, SERVICE_S, LIMIT_S, TARGET)
    errors = []
    for seed in (1, 2, 3):

        def probe(rate: float, num: int, attempt: int, seed: int = seed) -> list[bool]:
            outcomes, _ = _go(behaviour, num=num, tokens=2, rate=rate, seed=1000 * seed + attempt)
            return [o.ok and o.ttft_s <= LIMIT_S for o in outcomes]

        found = find_capacity(probe, start_per_s=truth / 1.7, most_per_s=1000, target=TARGET, requests=1200)
        errors.append(abs(found.rate_per_s / truth - 1))
    what = (
        f"a queue of {PLACES} places that carries {number_of(truth, 'call', form='.0f')}/s; worst of 3 seeds"
    )
    return [_at_most("error of found capacity", what, max(errors), 0.05, "ratio", 3)]
