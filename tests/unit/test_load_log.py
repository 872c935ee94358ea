"""The raw log, the streams in it, and what is made of them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.families.serving.core.client_figures import seen
from paceline.families.serving.core.load.log.definitions import as_others_print, became
from paceline.families.serving.core.load.log.entries import Entry, Log, ProcessFacts, read_log, write_log
from paceline.families.serving.core.load.log.events import read_stream
from paceline.families.serving.core.load.log.outcomes import (
    counts,
    gaps_s,
    meets,
    outcome_of,
    outcomes_of,
    percentile,
    tokens_per_s,
)


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def token(text: str, ids: list[int] | None = None, finish: str | None = None) -> bytes:
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return event(choices=[choice])


DONE = b"data: [DONE]\n\n"


def answered(times_ms: list[int], *, due_ms: int = 0, asked: int | None = None, tail: bytes = DONE) -> Entry:
    """Return a call whose tokens came one by one at these instants."""
    chunks = [(ms * 1_000_000, token(f" {n}", [n])) for n, ms in enumerate(times_ms)]
    chunks.append((times_ms[-1] * 1_000_000, tail))
    return Entry(
        number=0,
        tenant="",
        due_ns=due_ms * 1_000_000,
        asked_tokens=len(times_ms) if asked is None else asked,
        sent_ns=due_ms * 1_000_000,
        status=200,
        chunks=chunks,
        ended_ns=times_ms[-1] * 1_000_000,
        ending="complete",
    )


STREAM = (
    event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    + b": a comment keeps the connection\n\n"
    + event(choices=[{"index": 0, "delta": {"content": "für"}}])
    + event(choices=[{"index": 0, "delta": {"content": " dich"}, "finish_reason": "stop"}])
    + event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2})
    + DONE
)


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_stream_says_the_same_however_the_network_cuts_it(cuts: list[int], with_returns: bool) -> None:
    data = STREAM.replace(b"\n", b"\r\n") if with_returns else STREAM
    edges = [0, *sorted({c for c in cuts if c < len(data)}), len(data)]
    chunks = [(n, data[a:b]) for n, (a, b) in enumerate(itertools.pairwise(edges))]
    read = read_stream(chunks)
    assert (read.text, read.tokens, read.usage_tokens, read.prompt_tokens) == ("für dich", 2, 2, 7)
    assert (read.finish, read.done, read.problem, read.failure) == ("stop", True, None, None)


def test_an_event_counts_when_its_last_byte_came() -> None:
    data = token(" a", [1])
    read = read_stream([(5, data[:10]), (9, data[10:] + DONE)])
    assert [p.at_ns for p in read.pieces] == [9]


def test_a_role_alone_is_no_token() -> None:
    read = read_stream([(1, STREAM[:80]), (2, STREAM[80:])])

    assert len(read.pieces) == 2


def test_tokens_of_an_event_are_counted_by_ids_then_by_usage_then_as_one() -> None:
    four = token(" a b c d", [1, 2, 3, 4])
    assert read_stream([(1, four + DONE)]).tokens == 4
    plain = token(" aaaa") + token(" bbbb") + event(choices=[], usage={"completion_tokens": 8}) + DONE
    by_usage = read_stream([(1, plain)])
    assert (by_usage.counted_by, [p.tokens for p in by_usage.pieces]) == ("usage", [4.0, 4.0])
    by_events = read_stream([(1, token(" aaaa") + token(" b") + DONE)])
    assert (by_events.counted_by, by_events.tokens) == ("chunks", 2)


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"", "unended"),
        (b'data: {"choices": [\n\n' + DONE, "malformed"),
        (event(output=[]) + DONE, "malformed"),
        (event(choices=[{"index": 0, "text": 5}]) + DONE, "malformed"),
        (b"data: 17\n\n" + DONE, "malformed"),
        (DONE + b"data: {", "malformed"),
        (event(error={"message": "out of memory"}) + DONE, "error_event"),
        (event(choices=[], usage={"completion_tokens": 9}) + DONE, "miscounted"),
        (token(" x", [5]) + DONE, "overlong"),
    ],
)
def test_an_answer_that_is_not_as_the_interface_says_does_not_count(tail: bytes, kind: str) -> None:
    outcome = outcome_of(answered([10, 20, 30], tail=tail))
    assert outcome.kind == kind
    assert not outcome.ok
    assert math.isinf(outcome.ttft_s)
    assert outcome.tpot_s is None


def test_an_answer_that_is_too_short_is_cut_short() -> None:
    assert outcome_of(answered([10, 20], asked=3)).kind == "truncated"
    assert outcome_of(answered([10, 20], asked=3), exact=False).ok


def test_times_run_from_the_instant_at_which_a_call_was_due() -> None:
    entry = answered([1050, 1060, 1080], due_ms=1000)
    entry.sent_ns = 1_030_000_000
    outcome = outcome_of(entry)
    assert outcome.ttft_s == pytest.approx(0.050)
    assert outcome.e2e_s == pytest.approx(0.080)
    assert outcome.tpot_s == pytest.approx(0.015)
    assert outcome.lateness_s == pytest.approx(0.030)


def test_several_tokens_in_an_event_do_not_change_the_pace() -> None:
    chunks = [(ms * 1_000_000, token(" t" * 4, [1, 2, 3, 4])) for ms in (80, 120, 160)]
    entry = answered([0], asked=12)
    entry.chunks = [*chunks, (160_000_000, DONE)]
    outcome = outcome_of(entry)
    assert outcome.pace_s == pytest.approx(0.010)
    assert gaps_s([outcome]) == pytest.approx([0.040, 0.040])


def test_failed_calls_are_slower_than_all_others() -> None:
    values = [0.1] * 98 + [math.inf] * 2
    assert percentile(values, 0.5) == 0.1
    assert percentile(values, 0.97) == 0.1
    assert percentile(values, 0.99) is None
    assert percentile([], 0.5) is None


def test_a_failed_call_meets_no_objective() -> None:
    good, bad = outcome_of(answered([10, 20])), outcome_of(answered([10, 20], tail=b""))
    assert meets(good, ttft_s=0.01, tpot_s=0.01)
    assert not meets(good, ttft_s=0.0099, tpot_s=1)
    assert not meets(good, ttft_s=1, tpot_s=0.0099)
    assert not meets(bad, ttft_s=1, tpot_s=1)
    assert counts([good, bad]) == {"complete": 1, "unended": 1}


def test_throughput_counts_what_came_in_the_steady_part_only() -> None:
    entries = [answered([s * 1000 + 1], due_ms=s * 1000) for s in range(11)]
    for number, entry in enumerate(entries):
        entry.number = number
    log = Log(header={}, entries=tuple(entries), processes=())
    assert tokens_per_s(outcomes_of(log)) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.binary(max_size=40)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_log_comes_back_as_it_was_written(tmp_path_factory: Any, chunks: list[tuple[int, bytes]]) -> None:
    folder: Path = tmp_path_factory.mktemp("log")
    entry = Entry(number=0, tenant="ä", due_ns=None, asked_tokens=3, chunks=chunks, detail="x\ny")
    facts = ProcessFacts(part=0, cpu_s=0.1, wall_s=1.0, lags_s=(0.001,))
    log = Log(header={"calls": 1}, entries=(entry,), processes=(facts,))
    write_log(folder / "a.gz", log)
    write_log(folder / "b.gz", log)
    assert (folder / "a.gz").read_bytes() == (folder / "b.gz").read_bytes()
    again = read_log(folder / "a.gz")
    assert again.header == log.header and again.processes == log.processes
    assert [(e.chunks, e.detail, e.tenant) for e in again.entries] == [(chunks, "x\ny", "ä")]


def test_a_line_that_is_none_of_a_log_is_named(tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "log.gz", "wt") as lines:
        lines.write('{"run": {}}\n{"call": {"surprise": 1, "chunks": []}}\n')
    with pytest.raises(ValueError, match=r"log\.gz:2: no line of a load log"):
        read_log(tmp_path / "log.gz")


def test_other_clients_print_other_figures_of_the_same_run() -> None:
    chunks = [(ms * 1_000_000, token(" t" * n, list(range(n)))) for ms, n in ((80, 1), (120, 4), (160, 4))]
    entry = answered([0], asked=9)
    entry.sent_ns = 30_000_000
    entry.chunks = [*chunks, (160_000_000, DONE)]
    printed = {p.client: p for p in as_others_print(Log(header={}, entries=(entry,), processes=()))}
    assert {n: round(p.ttft_p50_s, 6) for n, p in printed.items()} == {
        **dict.fromkeys(("paceline", "mlperf"), 0.08),
        **dict.fromkeys(("vllm", "sglang", "aiperf", "guidellm", "inference-perf"), 0.05),
    }
    assert {n: round(p.itl_mean_s or 0, 6) for n, p in printed.items()} == {
        **dict.fromkeys(("paceline", "mlperf", "vllm"), 0.04),
        **dict.fromkeys(("sglang", "inference-perf", "aiperf", "guidellm"), 0.01),
    }
    assert printed["guidellm"].tpot_mean_s == pytest.approx(0.130 / 9)
    assert printed["vllm"].tpot_mean_s == pytest.approx(0.080 / 8)


def test_a_log_without_a_whole_answer_has_nothing_to_print() -> None:
    log = Log(header={}, entries=(answered([10], tail=b""),), processes=())
    with pytest.raises(ValueError, match="no call of this log"):
        as_others_print(log)


def kept_back(number: int, tokens: int, at_ms: int) -> Entry:
    """An answer that comes as one event, though it was made token by token."""
    entry = answered([0], asked=tokens)
    entry.number = number
    entry.chunks = [(at_ms * 1_000_000, token(" t" * tokens, list(range(tokens)))), (at_ms * 1_000_000, DONE)]
    return entry


def evenly(number: int, tokens: int, every_ms: int) -> Entry:
    entry = answered([0], asked=tokens)
    entry.number = number
    entry.chunks = [((50 + i * every_ms) * 1_000_000, token(" t", [i])) for i in range(tokens)]
    entry.chunks.append((entry.chunks[-1][0], DONE))
    return entry


def test_our_own_row_is_the_records_metrics() -> None:
    """Kept-back answers have no time per token, and none that averages in as 0; their number is told."""
    entries = [kept_back(n, 33, 370) if n % 2 else evenly(n, 33, 10) for n in range(12)]
    log = Log(header={}, entries=tuple(entries), processes=())
    own = as_others_print(log)[0]
    assert own.client == "paceline"
    assert own.tpot_mean_s == pytest.approx(0.010)
    recorded = seen(outcomes_of(log), {"slo_ttft": 1.0, "slo_tpot": 1.0})
    assert own.ttft_p50_s == recorded["ttft_p50"]
    assert own.ttft_p99_s == recorded["ttft_p99"]
    assert own.itl_p99_s == recorded["itl_p99"]
    assert recorded["tpot_p50"] == pytest.approx(0.010)
    assert "6 x several tokens came as one event" in became(log)
    kept = as_others_print(Log(header={}, entries=(kept_back(0, 33, 370),), processes=()))
    assert kept[0].tpot_mean_s is None
    assert {p.client for p in kept if p.tpot_mean_s == 0.0} >= {"vllm", "sglang", "aiperf"}


def test_in_our_own_row_failed_calls_are_the_slowest() -> None:
    failed = [answered([10], tail=b"") for _ in range(30)]
    log = Log(header={}, entries=(*(evenly(n, 3, 10) for n in range(70)), *failed), processes=())
    own, *others = as_others_print(log)
    assert own.calls == 100
    assert own.ttft_p50_s == pytest.approx(0.050)
    assert own.ttft_p99_s is None
    assert all(other.calls == 70 and other.ttft_p99_s is not None for other in others)
