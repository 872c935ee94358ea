"""One raw log as other clients would print it: the same words stand for other quantities there.

Each reading says where a time begins, what one sample of a gap is, and what is divided by what. Other clients leave out
calls that failed. This project's own row is its metrics: failed calls are slower than all others, and an answer that
came as one piece has no time per token. Percentiles are taken between the two nearest samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.serving.core.load.log.entries import Log
from paceline.families.serving.core.load.log.events import WARNINGS, count_warnings
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, gaps_s, outcomes_of, percentile
from paceline.families.serving.core.load.log.prompts import told_of_prompts

Samples = Callable[[Outcome], Iterator[float]]


def _instants(outcome: Outcome) -> list[float]:
    return [p.at_ns * 1e-9 for p in outcome.pieces]


def _own_first(outcome: Outcome) -> Iterator[float]:
    yield outcome.ttft_s


def _own_gaps(outcome: Outcome) -> Iterator[float]:
    yield from gaps_s([outcome])


def _own_per_token(outcome: Outcome) -> Iterator[float]:
    if outcome.tpot_s is not None:
        yield outcome.tpot_s


def _from_due(outcome: Outcome) -> Iterator[float]:
    assert outcome.due_s is not None
    yield _instants(outcome)[0] - outcome.due_s


def _from_sent(outcome: Outcome) -> Iterator[float]:
    assert outcome.sent_s is not None
    yield _instants(outcome)[0] - outcome.sent_s


def _gaps(outcome: Outcome) -> Iterator[float]:
    instants = _instants(outcome)
    yield from (b - a for a, b in itertools.pairwise(instants))


def _gaps_by_token(outcome: Outcome) -> Iterator[float]:
    """Yield each gap over the tokens of the event behind it, once for each of these."""
    for gap, piece in zip(_gaps(outcome), outcome.pieces[1:], strict=True):
        tokens = max(round(piece.tokens), 1)
        # Weighted by tokens: one event of eight tokens is eight short gaps here, and one long one in the plain
        # reading.
        yield from [gap / tokens] * tokens


def _mean_gap(outcome: Outcome) -> Iterator[float]:
    instants = _instants(outcome)
    if outcome.tokens > 1:
        yield (instants[-1] - instants[0]) / (outcome.tokens - 1)


def _per_token_with_first(outcome: Outcome) -> Iterator[float]:
    assert outcome.sent_s is not None
    if outcome.tokens:
        yield (_instants(outcome)[-1] - outcome.sent_s) / outcome.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one client's words mean."""

    ttft: Samples
    itl: Samples
    tpot: Samples
    note: str
    source: str
    """Where its words are explained."""
    whole_alone: bool = True
    """Whether calls that failed are left out."""


READINGS: dict[str, Reading] = {
    "paceline": Reading(
        ttft=_own_first,
        itl=_own_gaps,
        tpot=_own_per_token,
        note="from the instant at which a call was due; gaps between events, pooled; failed calls are the slowest",
        source="docs/serving.md",
        whole_alone=False,
    ),
    "vllm": Reading(
        ttft=_from_sent,
        itl=_gaps,
        tpot=_mean_gap,
        note="from sending; gaps between events, pooled, one for an event of several tokens",
        source="vllm-project/vllm#50600",
    ),
    "sglang": Reading(
        ttft=_from_sent,
        itl=_gaps_by_token,
        tpot=_mean_gap,
        note="from sending; a gap is divided by the tokens of its event, and counts once for each",
        source="vllm-project/guidellm#1145, on SGLang's use_retokenized_itl",
    ),
    "aiperf": Reading(
        ttft=_from_sent,
        itl=_mean_gap,
        tpot=_mean_gap,
        note="from sending, without empty events; ITL is a call's mean, and gaps are the inter-chunk latency",
        source="AIPerf Metrics Reference 0.13",
    ),
    "guidellm": Reading(
        ttft=_from_sent,
        itl=_mean_gap,
        tpot=_per_token_with_first,
        note="from sending; ITL is a call's mean; time per output token holds the first one's",
        source="vllm-project/guidellm#1145",
    ),
    "inference-perf": Reading(
        ttft=_from_sent,
        itl=_gaps_by_token,
        tpot=_mean_gap,
        note="from sending; gaps by tokens and not by events",
        source="kubernetes-sigs/inference-perf#410",
    ),
    "mlperf": Reading(
        ttft=_from_due,
        itl=_gaps,
        tpot=_mean_gap,
        note="from the instant at which its load generator issues a query by schedule; bounds are on TTFT and TPOT",
        source="MLPerf Inference rules, LLM server scenario",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a client would print; seconds."""

    client: str
    calls: int
    ttft_p50_s: float | None
    """None where failed calls reach up to it."""
    ttft_p99_s: float | None
    itl_mean_s: float | None
    itl_p99_s: float | None
    tpot_mean_s: float | None
    tpot_p99_s: float | None
    note: str


def as_others_print(log: Log) -> list[Printed]:
    """Read one log in every way.

    Raises:
        ValueError: No call of it has a whole answer.
    """
    outcomes = outcomes_of(log)
    whole = [o for o in outcomes if o.ok]
    if not whole:
        raise ValueError(f"no call of this log has a whole answer; {became(log)}")
    return [_printed(name, r, whole if r.whole_alone else outcomes) for name, r in READINGS.items()]


def became(log: Log) -> str:
    """Say what became of a log's calls, what was unusual about whole answers, and how long those thought."""
    outcomes = outcomes_of(log)
    whole = [o for o in outcomes if o.ok]
    said = ["calls: " + ", ".join(f"{number} {kind}" for kind, number in counts(outcomes).items())]
    warnings = count_warnings([o.stream for o in whole], [o.stream for o in outcomes if not o.ok])
    said += [f"{number} x {WARNINGS[w]}" for w, number in warnings.items()]
    said += told_of_prompts(outcomes)
    thinking = [o for o in whole if o.thinks]
    if thinking:
        first = percentile([o.ttft_s for o in thinking], 0.5)
        answer = percentile([o.first_answer_s for o in thinking], 0.5)
        behind = "none" if answer is None else f"{answer:.3g} s"
        said.append(
            f"{len(thinking)} think: first token p50 {first:.3g} s, first token of the answer p50 {behind}"
        )
    return "; ".join(said)


def _printed(name: str, reading: Reading, outcomes: Sequence[Outcome]) -> Printed:
    ttft, itl, tpot = (
        [value for o in outcomes for value in samples(o)]
        for samples in (reading.ttft, reading.itl, reading.tpot)
    )
    return Printed(
        client=name,
        calls=len(outcomes),
        ttft_p50_s=percentile(ttft, 0.5),
        ttft_p99_s=percentile(ttft, 0.99),
        itl_mean_s=fmean(itl) if itl else None,
        itl_p99_s=percentile(itl, 0.99),
        tpot_mean_s=fmean(tpot) if tpot else None,
        tpot_p99_s=percentile(tpot, 0.99),
        note=reading.note,
    )
