"""How long a plan will take, and what that rests on: earlier runs of the host where there are any, else a formula.

A formula was made on two slow cores. Of 143 suites in published runs, 139 took between a fifth of what it says and ten
times as long, so it is told as that range. Of accelerators, and of models that somebody brings along, it says nothing:
until a first run there is no estimate, and only the limit that the protocol's time-outs set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

START_S = 3.0
"""Rough seconds to start one process group."""
PASS_CALLS = 60
"""Calls per case that a launch makes beside the timed ones (gate, passes), for the estimate."""
CASE_S = 0.15
"""Rough seconds of each rank's own work for a case: inputs, references, verification."""
TYPICAL_BYTES = 128 << 10
"""Bytes of a call whose parameters do not say."""
DELAYS_PER_CALL = 4
LONG_S = 1.0
"""An observation that takes longer is a scenario: it runs once in a launch."""
ACCELERATORS = ("cuda", "rocm", "npu", "plugin")
FORMULA_LOW, FORMULA_HIGH = 0.2, 10.0
"""The formula's range, as factors: a test holds it against the published runs."""
SIBLINGS_LOW, SIBLINGS_HIGH = 0.5, 2.0
"""The same for a point whose neighbours in the suite were measured: the formula then only compares it with them."""
RUN_SPREAD = 2.0
"""The factor by which another run of the same points may differ from one earlier run, as published runs did. More runs
show themselves how far they differ: with n of them the factor's power of 1 / √n is allowed beyond the extremes."""

Observation = Callable[[Any], float | None]
"""Gives rough seconds of one observation at a point; None where nobody can know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Seconds that something takes: what is likely, and between which limits."""

    low_s: float
    likely_s: float
    high_s: float

    def times(self, factor: float) -> Span:
        """Return so many of it."""
        return Span(low_s=self.low_s * factor, likely_s=self.likely_s * factor, high_s=self.high_s * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier runs of a host took for one launch."""

    cases: Mapping[str, Span] = field(default_factory=dict)
    """Of each case of a block."""
    starts: Mapping[str, Span] = field(default_factory=dict)
    """Of a process group, beside its blocks."""
    num_runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """What one launch of a block takes."""

    span: Span | None
    """None where there is no estimate."""
    planned_s: float
    """What a budget has to hold ready: the likely time; without an estimate the formula's, or the time-outs'."""
    most_s: float
    """All its cases' time-outs, or what earlier runs showed if that is more."""
    basis: str
    """runs, siblings, formula or none."""


def block_times(
    data: Mapping[str, Any], observation_s: Mapping[str, Observation], known: Known = Known()
) -> dict[str, BlockTime]:
    """Return what one launch of each block of a plan takes.

    Args:
        data: The plan.
        observation_s: Rough seconds of one observation at a point, by family.
        known: What earlier runs of this host took.
    """
    formulas = {b["block"]: _formula_s(b, observation_s[b["family"]]) for b in data["blocks"]}
    blind = data["runner"]["device"] in ACCELERATORS
    siblings = _siblings(data["blocks"], formulas, known)
    return {
        b["block"]: _block_time(b, formulas[b["block"]], known, siblings.get(b["suite"]), blind)
        for b in data["blocks"]
    }


def _block_time(
    block: Mapping[str, Any],
    formula_s: float | None,
    known: Known,
    sibling: tuple[float | None, float] | None,
    blind: bool,
) -> BlockTime:
    most_s = len(block["cases"]) * float(block["protocol"]["timeout_s"])
    measured = known.cases.get(block["block"])
    if measured is not None:
        span = measured.times(len(block["cases"]))
        return BlockTime(span=span, planned_s=span.likely_s, most_s=max(most_s, span.high_s), basis="runs")
    if sibling is not None:
        ratio, case_s = sibling
        one = formula_s * ratio if formula_s is not None and ratio is not None else None
        likely = min(one if one is not None else case_s * len(block["cases"]), most_s)
        return _bounded(likely, most_s, SIBLINGS_LOW, SIBLINGS_HIGH, "siblings")
    if formula_s is None:
        return BlockTime(span=None, planned_s=most_s, most_s=most_s, basis="none")
    likely = min(formula_s, most_s)
    if blind:
        return BlockTime(span=None, planned_s=likely, most_s=most_s, basis="none")
    return _bounded(likely, most_s, FORMULA_LOW, FORMULA_HIGH, "formula")


def _bounded(likely_s: float, most_s: float, low: float, high: float, basis: str) -> BlockTime:
    span = Span(low_s=likely_s * low, likely_s=likely_s, high_s=min(likely_s * high, most_s))
    return BlockTime(span=span, planned_s=likely_s, most_s=most_s, basis=basis)


def _siblings(
    blocks: Sequence[Mapping[str, Any]], formulas: Mapping[str, float | None], known: Known
) -> dict[str, tuple[float | None, float]]:
    """Return for each suite with measured blocks how they compare with the formula, and the mean seconds of a case."""
    found: dict[str, tuple[float | None, float]] = {}
    for suite in {b["suite"] for b in blocks}:
        measured = [b for b in blocks if b["suite"] == suite and b["block"] in known.cases]
        if measured:
            seconds = [known.cases[b["block"]].likely_s * len(b["cases"]) for b in measured]
            guessed = [formulas[b["block"]] for b in measured]
            whole = sum(g for g in guessed if g is not None)
            ratio = sum(seconds) / whole if whole and None not in guessed else None
            found[suite] = (ratio, sum(seconds) / sum(len(b["cases"]) for b in measured))
    return found


def start_times(data: Mapping[str, Any], known: Known = Known()) -> dict[str, Span]:
    """Return what starting each process group of a plan takes in one launch."""
    return {g["group"]: known.starts.get(g["group"]) or _guessed_start(g["ranks"]) for g in data["groups"]}


def _guessed_start(ranks: int) -> Span:
    likely = START_S + 0.5 * ranks
    return Span(low_s=likely / 2, likely_s=likely, high_s=likely * 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRange:
    """How many launches a block can get: few, likely, and most; one number where they are fixed."""

    low: int
    likely: int
    high: int

    def of(self, span: Span) -> Span:
        """Return what that many launches take."""
        return Span(
            low_s=span.low_s * self.low, likely_s=span.likely_s * self.likely, high_s=span.high_s * self.high
        )


def launches_of(protocol: Mapping[str, Any]) -> LaunchRange:
    """Return a protocol's launches; until decided, points often are at their first look or the next."""
    looks = protocol.get("looks") or [protocol["launches"]]
    return LaunchRange(low=looks[0], likely=looks[min(1, len(looks) - 1)], high=looks[-1])


def budget_of(data: Mapping[str, Any]) -> float:
    """Return the seconds after which no launch of a plan starts; infinite where a suite of it has no budget."""
    stopping = data.get("stopping")
    if stopping is None:
        return math.inf
    if stopping["budget_s"] is not None:
        return float(stopping["budget_s"])
    suites = {b["suite"] for b in data["blocks"]}
    budgets = [stopping["suites"].get(s, {"budget_s": None})["budget_s"] for s in suites]
    return math.inf if None in budgets else float(sum(budgets))


def estimate(
    data: Mapping[str, Any], observation_s: Mapping[str, Observation], known: Known = Known()
) -> dict[str, Any]:
    """Estimate a plan's seconds, and say what that rests on.

    Returns:
        ``low_s``, ``likely_s`` and ``high_s``, all None where a block has no estimate; ``most_s``, which the time-outs
        allow; ``basis``: ``earlier runs``, ``formula``, ``earlier runs and formula`` or ``none``; ``num_runs``: how
        many earlier runs; ``num_blocks_known``: blocks that they measured; ``num_over_limit``: points of which the
        formula says that one observation takes longer here than the time-out.
    """
    times = block_times(data, observation_s, known)
    launches = {b["block"]: launches_of(b["protocol"]) for b in data["blocks"]}
    most = sum(launches[name].high * t.most_s for name, t in times.items())
    spans = [launches[name].of(t.span) for name, t in times.items() if t.span is not None]
    unknown = len(spans) < len(times)
    starts = start_times(data, known)
    for group in data["groups"]:
        count = max((launches[name] for name in group["blocks"]), key=lambda n: n.high)
        start = count.of(starts[group["group"]])
        most += max(count.high * data["runner"]["limits"]["launch_s"], start.high_s)
        spans.append(start)
    measured = sum(t.basis == "runs" for t in times.values())
    budget_s = budget_of(data)
    sums = {
        key: round(min(sum(getattr(s, key) for s in spans), budget_s), 1)
        for key in ("low_s", "likely_s", "high_s")
    }
    return {
        **(dict.fromkeys(sums) if unknown else sums),
        "most_s": round(most, 1),
        "basis": _basis(times, unknown),
        "num_runs": known.num_runs if measured else 0,
        "num_blocks_known": measured,
        "num_over_limit": sum(
            t.basis == "formula" and _over_limit(b, observation_s[b["family"]])
            for b, t in zip(data["blocks"], times.values(), strict=True)
        ),
    }


def _basis(times: Mapping[str, BlockTime], unknown: bool) -> str:
    if unknown:
        return "none"
    kinds = {t.basis for t in times.values()}
    if "runs" not in kinds:
        return "formula"
    return "earlier runs" if kinds == {"runs"} else "earlier runs and formula"


def _over_limit(block: Mapping[str, Any], observation_s: Observation) -> bool:
    one = observation_s(block["params"])
    return one is not None and one > block["protocol"]["timeout_s"]


def _formula_s(block: Mapping[str, Any], observation_s: Observation) -> float | None:
    """Return what one launch of a block takes on two slow cores, roughly."""
    protocol = block["protocol"]
    observed = observation_s(block["params"])
    if observed is None:
        return None
    one = observed + _on_the_link_s(block)
    every = one * len(block["cases"])
    timed = max(min(protocol["max_seconds"], every * protocol["max_samples"]), every)
    if one < LONG_S:
        warm_up = min(protocol["warmup_seconds"], 10 * every) if protocol["warmup"] != "none" else 0.0
        timed += warm_up + PASS_CALLS * every + CASE_S * block["ranks"] * len(block["cases"])
    return float(timed * protocol.get("instances", 1))


def _on_the_link_s(block: Mapping[str, Any]) -> float:
    """Return what a shaped link adds to a call, roughly."""
    link = block["link"]
    size = block["params"].get("size_bytes") or TYPICAL_BYTES
    carried = size / link["rate_bytes_per_s"] if link.get("rate_bytes_per_s") else 0.0
    return float(carried + DELAYS_PER_CALL * (link.get("delay_s") or 0.0))
