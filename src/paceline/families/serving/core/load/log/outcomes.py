"""What became of every call of a log: whether it counts, and its times. All figures are made of these."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.base.counting import number_of
from paceline.families.serving.core.load.log.deltas import THINKING
from paceline.families.serving.core.load.log.entries import COMPLETE, ENDINGS, Entry, Log
from paceline.families.serving.core.load.log.events import Piece, Stream, read_stream
from paceline.families.serving.core.load.log.framing import is_event_stream

NUM_QUANTILES = 100
"""Of a curve."""
AT_LIMIT = "length"
"""Finish reason of an answer that has as many tokens as were asked for."""
OUTCOMES = {
    **ENDINGS,
    "truncated": "fewer tokens than were asked for",
    "overlong": "more tokens than were asked for",
    "unended": "the end was not told",
    "miscounted": "the server counts other tokens than came",
    "textless": "the server counts tokens, and none of them has text",
}
"""What can become of a call; those beyond ``ENDINGS`` are seen in what was received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One call; times are seconds, and infinite where there was no answer."""

    number: int
    tenant: str
    kind: str
    """A key of ``OUTCOMES``."""
    detail: str | None
    due_s: float | None
    """Behind the start; None if it never became due."""
    sent_s: float | None
    ended_s: float | None
    tokens: int
    asked_prompt_tokens: int | None
    """Tokens that the prompt was meant to have."""
    prompt_tokens: int | None
    """Tokens of the prompt, and of these the cached ones, as the server counts them."""
    cached_tokens: int | None
    ttft_s: float
    """From when it was due to the first piece of output of any kind: thinking, answer, call of a tool."""
    first_answer_s: float
    """From when it was due to the first piece of output that is not thinking; infinite where it ends thinking."""
    e2e_s: float
    """From when it was due to the last piece of output."""
    tpot_s: float | None
    """(last − first) / (tokens − 1); None where there are not two pieces, or not two tokens."""
    pace_s: float | None
    """(last − first) / tokens behind the first piece: what it is whatever number of tokens a piece holds."""
    pieces: tuple[Piece, ...]
    stream: Stream

    @property
    def ok(self) -> bool:
        """Return whether the answer is whole and as the interface says."""
        return self.kind == COMPLETE

    @property
    def thinks(self) -> bool:
        """Return whether some of its output is thinking."""
        return any(p.kind == THINKING for p in self.pieces)

    @property
    def lateness_s(self) -> float | None:
        """Return how long after its instant it was sent."""
        return None if self.due_s is None or self.sent_s is None else self.sent_s - self.due_s


def outcome_of(
    entry: Entry, *, exact: bool = True, bounded: bool = True, length_counts: bool = False
) -> Outcome:
    """Read one call.

    Args:
        entry: Its line of the log.
        exact: Whether as many tokens as were asked for have to come.
        bounded: Whether the request said how many; else an answer may have any number.
        length_counts: Whether an answer that nobody counts has as many as were asked for where it ends with the
            finish reason ``length``: some events hold several tokens then, or tokens that are no text yet.
    """
    stream = _stream_of(entry, at_limit=length_counts and bounded)
    kind, detail = entry.ending, entry.detail
    if kind == COMPLETE:
        kind, detail = _judge(entry, stream, exact and bounded, bounded)
    pieces = stream.pieces
    due_ns = entry.due_ns
    good = kind == COMPLETE and due_ns is not None and bool(pieces)
    first, last = (pieces[0].at_ns, pieces[-1].at_ns) if pieces else (0, 0)
    answer = next((p.at_ns for p in pieces if p.kind != THINKING), None)
    behind = sum(p.tokens for p in pieces[1:])
    several = good and len(pieces) > 1 and stream.tokens > 1 and behind > 0
    return Outcome(
        number=entry.number,
        tenant=entry.tenant,
        kind=kind,
        detail=detail,
        due_s=_seconds(due_ns),
        sent_s=_seconds(entry.sent_ns),
        ended_s=_seconds(entry.ended_ns),
        # Kept of failed calls too: the server computed them, and throughput counts them.
        tokens=stream.tokens,
        asked_prompt_tokens=entry.asked_prompt_tokens,
        prompt_tokens=stream.prompt_tokens,
        cached_tokens=stream.cached_tokens,
        ttft_s=(first - (due_ns or 0)) * 1e-9 if good else math.inf,
        first_answer_s=(answer - (due_ns or 0)) * 1e-9 if good and answer is not None else math.inf,
        e2e_s=(last - (due_ns or 0)) * 1e-9 if good else math.inf,
        tpot_s=(last - first) * 1e-9 / (stream.tokens - 1) if several else None,
        # Over tokens behind the first piece: with several tokens a piece, tokens − 1 would count some that came with
        # the first.
        pace_s=(last - first) * 1e-9 / behind if several else None,
        pieces=pieces,
        stream=stream,
    )


def _stream_of(entry: Entry, *, at_limit: bool) -> Stream:
    """Read a call's answer, with what its head tells, and how many tokens it has by its limit."""
    stream = read_stream(entry.chunks, encoding=entry.encoding)
    warnings = set(stream.warnings)
    if stream.ended and not stream.done:
        warnings.add("no_done")
    if entry.redirects:
        warnings.add("redirected")
    if entry.resent:
        warnings.add("resent")
    if entry.informational:
        warnings.add("informational")
    if entry.status is not None and 200 < entry.status < 300:
        warnings.add("status")
    if entry.content_type is not None and not is_event_stream(entry.content_type):
        warnings.add("content_type")
    asked, pieces = entry.asked_tokens, stream.pieces
    if stream.counted_by == "usage" and stream.tokens == asked + 1 and len(pieces) == asked:
        warnings.add("end_token")
        alone = tuple(replace(p, tokens=1.0) for p in pieces)
        stream = replace(stream, pieces=alone, tokens=asked, counted_by="chunks")
    if at_limit and stream.counted_by == "chunks" and stream.finish == AT_LIMIT and 0 < len(pieces) <= asked:
        dealt = tuple(replace(p, tokens=asked / len(pieces)) for p in pieces)
        stream = replace(stream, pieces=dealt, tokens=asked, counted_by="limit")
    if len(pieces) == 1 and stream.tokens > 1:
        warnings.add("one_event")
    return replace(stream, warnings=tuple(sorted(warnings)))


def _judge(entry: Entry, stream: Stream, exact: bool, bounded: bool) -> tuple[str, str | None]:
    if stream.failure is not None:
        return "error_event", stream.failure
    if stream.problem is not None:
        return "malformed", stream.problem
    if not stream.ended:
        return "unended", f"{number_of(stream.tokens, 'token')}, and neither [DONE] nor a finish reason"
    counted = (None, stream.tokens, stream.tokens + 1 if "end_token" in stream.warnings else None)
    if stream.counted_by == "token_ids" and stream.usage_tokens not in counted:
        return (
            "miscounted",
            f"{number_of(stream.tokens, 'token came', 'tokens came')}, the server counts {stream.usage_tokens}",
        )
    why = "" if stream.finish is None else f"; finish reason {stream.finish}"
    if not stream.pieces and stream.usage_tokens:
        # Halves of characters, or marks that are not shown: when the first was there cannot be seen.
        told = number_of(stream.usage_tokens, "token")
        return "textless", f"the server counts {told}, and none of them has text{why}"
    short = stream.tokens < entry.asked_tokens if exact else not stream.pieces
    if short:
        kind = "truncated" if stream.done else "unended"
        return kind, f"{stream.tokens} of {number_of(entry.asked_tokens, 'token')}{why}"
    if bounded and stream.tokens > entry.asked_tokens:
        return "overlong", f"{stream.tokens} instead of {number_of(entry.asked_tokens, 'token')}"
    return COMPLETE, None


def _seconds(instant_ns: int | None) -> float | None:
    return None if instant_ns is None else instant_ns * 1e-9


def outcomes_of(log: Log, *, exact: bool | None = None) -> tuple[Outcome, ...]:
    """Read all calls of a log, as its requests were made.

    Where they left ``max_tokens`` out, answers may have any number of tokens; where they left ``ignore_eos`` out, a
    model may end where it likes, and nobody is to blame.

    Args:
        log: What was received. ``length_counts`` in its header is that of ``outcome_of``.
        exact: As of ``outcome_of``; None as the requests say.
    """
    left_out = log.header.get("request", {}).get("left_out", ())
    return tuple(
        outcome_of(
            entry,
            exact="ignore_eos" not in left_out if exact is None else exact,
            bounded="max_tokens" not in left_out,
            length_counts=bool(log.header.get("length_counts")),
        )
        for entry in log.entries
    )


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Count what became of calls; sums to their number."""
    return dict(sorted(Counter(o.kind for o in outcomes).items()))


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return a quantile between the two nearest values, or None where failed calls reach up to it.

    Args:
        values: Of all calls; infinite for those that failed, which are slower than any that did not.
        share: 0 … 1.
    """
    if not values:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    place = share * (len(ordered) - 1)
    # Failed calls are infinite and sort last: where they reach the place, the percentile is not defined and is not
    # shown as that of the rest.
    if not np.isfinite(ordered[math.ceil(place)]):
        return None
    return float(np.quantile(ordered, share))


def quantiles(quantity: str, share: str, values: Sequence[float]) -> dict[str, list[float]]:
    """Return the inverse of a distribution function, for a chart of a record's page.

    Args:
        quantity: What the values are called.
        share: What the shares are called.
        values: Zeros, of events that came together, are values like others; of fewer than two there is no curve.
    """
    ordered = sorted(values)
    if len(ordered) < 2:
        return {}
    steps = range(1, NUM_QUANTILES + 1)
    return {
        quantity: [ordered[math.ceil(k * len(ordered) / NUM_QUANTILES) - 1] for k in steps],
        share: [k / NUM_QUANTILES for k in steps],
    }


def gaps_s(outcomes: Sequence[Outcome]) -> list[float]:
    """Return all gaps between pieces of output of whole answers, pooled: a stall stays a stall."""
    found: list[float] = []
    for outcome in outcomes:
        if outcome.ok:
            instants = [p.at_ns for p in outcome.pieces]
            found.extend((b - a) * 1e-9 for a, b in itertools.pairwise(instants))
    return found


def window_s(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Return the steady part of a run: behind the first tenth of the time in which calls became due, until the last.

    Where all are due at once it is the whole run.
    """
    due = sorted(o.due_s for o in outcomes if o.due_s is not None)
    if not due:
        return 0.0, 0.0
    begin, end = due[0], due[-1]
    if end - begin > 0:
        # Without the beginning, in which queues and caches fill, and the end, in which no new calls come.
        return begin + 0.1 * (end - begin), end
    return begin, max((o.ended_s for o in outcomes if o.ended_s is not None), default=end)


def tokens_per_s(outcomes: Sequence[Outcome]) -> float:
    """Return output tokens a second over the steady part, of all answers, whole or not."""
    begin, end = window_s(outcomes)
    if end <= begin:
        return 0.0
    received = sum(p.tokens for o in outcomes for p in o.pieces if begin <= p.at_ns * 1e-9 <= end)
    return received / (end - begin)


def meets(outcome: Outcome, *, ttft_s: float, tpot_s: float) -> bool:
    """Return whether a call met its objectives; one that failed did not."""
    return outcome.ok and outcome.ttft_s <= ttft_s and (outcome.tpot_s is None or outcome.tpot_s <= tpot_s)
