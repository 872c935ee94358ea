"""What servers really send beside the interface: read where all tokens came, named and counted, and never silent."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from paceline.families.serving.core.client_figures import accounting
from paceline.families.serving.core.load.findings.certificate import certify
from paceline.families.serving.core.load.log.definitions import as_others_print, became
from paceline.families.serving.core.load.log.entries import Entry, Log
from paceline.families.serving.core.load.log.events import WARNINGS, count_warnings, read_stream
from paceline.families.serving.core.load.log.outcomes import Outcome, outcome_of, outcomes_of
from paceline.families.serving.core.load.log.reasons import error_of, reason_of
from paceline.families.serving.ops.serve.figures import figures

MS = 1_000_000
DONE = b"data: [DONE]\n\n"
STREAM = "text/event-stream"


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said, ensure_ascii=False).encode() + b"\n\n"


def delta(finish: str | None = None, more: dict[str, Any] | None = None, **held: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": held, "finish_reason": finish}], **(more or {}))


def usage(tokens: int, **more: Any) -> bytes:
    return event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": tokens, **more})


def answer(*parts: bytes, asked: int = 4, step_ms: int = 10, **head: Any) -> Entry:
    """Return a call due at 0 whose parts came one after another, the first after one step."""
    chunks = [(step_ms * n * MS, part) for n, part in enumerate(parts, 1)]
    given = {"status": 200, "content_type": STREAM, "ending": "complete", **head}
    return Entry(number=0, tenant="", due_ns=0, sent_ns=0, asked_tokens=asked, chunks=chunks, **given)


def read(*parts: bytes, **options: Any) -> Outcome:
    return outcome_of(answer(*parts, **options))


A = delta(content="a")
ROLE = delta(role="assistant", content="")
FOUR = (A, A, A, delta(content="a", finish="length"))


def weights(outcome: Outcome) -> list[float]:
    return [p.tokens for p in outcome.pieces]


@pytest.mark.parametrize(
    "think",
    [
        lambda text: delta(reasoning_content=text, content=None),
        lambda text: delta(reasoning=text),
        lambda text: delta(reasoning=text, reasoning_content=text),  # one text under two names
        lambda text: delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]),
        lambda text: delta(content=[{"type": "reasoning", "reasoning": text}]),
        lambda text: event(choices=[{"index": 0, "text": None, "reasoning_content": text}]),
    ],
)
def test_thinking_is_output_and_the_answer_has_a_first_token_of_its_own(
    think: Callable[[str], bytes],
) -> None:
    outcome = read(ROLE, think("hm"), think("hm"), think("so"), A, usage(4) + DONE)
    assert (outcome.kind, outcome.tokens, outcome.thinks) == ("complete", 4, True)
    assert outcome.ttft_s == pytest.approx(0.020)
    assert outcome.first_answer_s == pytest.approx(0.050)
    assert outcome.tpot_s == pytest.approx(0.010)
    assert outcome.pace_s == pytest.approx(0.010)
    assert [p.kind for p in outcome.pieces] == ["thinking"] * 3 + ["answer"]
    assert (outcome.stream.thinking, outcome.stream.text) == ("hmhmso", "a")


def test_an_answer_that_ends_while_thinking_is_whole_and_has_no_first_token_of_the_answer() -> None:
    think = delta(reasoning_content="hm")
    outcome = read(think, think, think, delta(reasoning_content="hm", finish="length"), usage(4) + DONE)
    assert outcome.ok
    assert outcome.ttft_s == pytest.approx(0.010)
    assert math.isinf(outcome.first_answer_s)


def test_without_thinking_both_first_tokens_are_the_same() -> None:
    outcome = read(*FOUR, usage(4) + DONE)
    assert outcome.first_answer_s == outcome.ttft_s == pytest.approx(0.010)
    assert not outcome.thinks


def test_the_metric_of_the_first_answer_token_is_absent_where_no_answer_thinks() -> None:
    params = {"slo_ttft": 1.0, "slo_tpot": 1.0}
    counters = {"computed_prompt_tokens": 1.0, "prefix_hit_tokens": 0.0}
    plain = read(*FOUR, usage(4) + DONE)
    thinks = read(delta(reasoning="hm"), A, A, A, usage(4) + DONE)
    assert figures([plain], {0: 3}, params, counters)[1]["first_answer_p50"] == "no answer thinks"
    metrics, absent = figures([thinks], {0: 3}, params, counters)
    assert metrics["first_answer_p50"] == {"samples": [pytest.approx(0.020)]}
    assert metrics["ttft_p50"] == {"samples": [pytest.approx(0.010)]}
    silent = read(*[delta(reasoning="hm")] * 4, usage(4) + DONE)
    assert "first_answer_p50" in figures([silent], {0: 3}, params, counters)[1]
    assert absent.keys().isdisjoint({"first_answer_p50"})


SUM = {"prompt_tokens": 3, "completion_tokens": 4}


@pytest.mark.parametrize(
    "last",
    [
        event(usage=SUM),
        event(choices=None, usage=SUM),
        event(choices=[], usage=SUM),
        event(choices=[{"index": 0, "delta": None, "finish_reason": "stop"}], usage=SUM),
        event(choices=[{"index": 0, "finish_reason": "stop"}], usage=SUM),
        event(choices=[], prompt_filter_results=[]) + event(usage=SUM) + event(usage=None),
        event(type="ping") + event(usage=SUM),
    ],
)
def test_a_usage_is_read_whatever_stands_in_the_place_of_choices(last: bytes) -> None:
    outcome = read(*FOUR, last + DONE)
    assert (outcome.kind, outcome.tokens, outcome.prompt_tokens) == ("complete", 4, 3)
    assert outcome.stream.warnings == ()


@pytest.mark.parametrize("none", [None, "", {}, [], False])
def test_an_error_that_is_empty_is_none(none: object) -> None:
    assert read(*[delta(content="a", more={"error": none})] * 4, usage(4) + DONE).ok


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (event(error={"message": "no memory", "type": "server", "code": 500}), "no memory (server, 500)"),
        (event(error="no memory"), "no memory"),
        (event(object="error", message="no memory", code=400), "no memory (400)"),
        (event(type="error", error={"type": "overloaded", "message": "busy"}), "busy (overloaded)"),
        (b'event: error\ndata: {"message": "busy", "code": 503}\n\n', "busy (503)"),
        (b"event: error\ndata: busy\n\n", "busy"),
        (b'event: error\ndata: {"error": {"message": "busy"}}\n\n', "busy"),
        (b"event: error\ndata:\n\n", "an event called 'error', without words"),
        (delta(finish="error"), "the finish reason is 'error'"),
    ],
)
def test_an_error_in_the_middle_is_one_in_the_servers_words_though_all_tokens_came(
    last: bytes, words: str
) -> None:
    outcome = read(*FOUR, last + usage(4) + DONE)
    assert (outcome.kind, outcome.detail) == ("error_event", words)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error": {"message": "bad model"}}', "bad model"),
        (b'{"error": null, "detail": "Not Found"}', "Not Found"),
        (b'{"detail": [{"msg": "field required"}]}', '[{"msg": "field required"}]'),
        (b'{"object": "error", "message": "too long", "code": 40303}', "too long (40303)"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b'["a"]', '["a"]'),
        (b"\xff" * 3, "\ufffd" * 3),
        (b"x" * 900, "x" * 500 + "…"),
    ],
)
def test_the_reason_of_a_body_is_its_message(body: bytes, reason: str) -> None:
    assert reason_of(body) == reason
    assert error_of({"error": None}) is None


def test_a_body_that_is_an_error_without_a_stream_is_read_under_the_type_of_streams() -> None:
    outcome = read(b'{\n  "error": {"message": "bad model"}\n}\n')
    assert (outcome.kind, outcome.detail) == ("error_event", "bad model")


def call(arguments: str = "", **function: Any) -> bytes:
    return delta(content=None, tool_calls=[{"index": 0, "function": {"arguments": arguments, **function}}])


@pytest.mark.parametrize(
    "parts",
    [
        (call(name="look"), call('{"a"'), call(": 1"), call("}")),
        (delta(tool_calls=[{"index": 0, "id": "x", "type": "function"}]), call("{"), call("1"), call("}")),
        (*[delta(function_call={"name": "f", "arguments": "1"})] * 4,),
        (delta(refusal="I"), delta(refusal=" can"), delta(refusal="not"), delta(refusal=".")),
        (delta(content=["a"]), delta(content=[{"type": "text", "text": "b"}]), A, A),
        (*[event(choices=[{"index": 0, "text": t, "delta": {"content": t}}]) for t in "abcd"],),
        (*[event(choices=[{"index": None, "text": t}]) for t in "abcd"],),
    ],
)
def test_calls_of_tools_refusals_and_lists_of_content_are_output(parts: tuple[bytes, ...]) -> None:
    outcome = read(ROLE, *parts, delta(finish="stop") + usage(4) + DONE)
    assert (outcome.kind, weights(outcome)) == ("complete", [1.0] * 4)
    assert outcome.ttft_s == outcome.first_answer_s == pytest.approx(0.020)


def test_a_last_piece_without_text_is_no_output() -> None:
    text = [event(choices=[{"index": 0, "text": t}]) for t in "abcd"]
    outcome = read(
        *text, event(choices=[{"index": 0, "text": None, "finish_reason": "length"}]) + usage(4) + DONE
    )
    assert (outcome.kind, outcome.tokens) == ("complete", 4)
    assert outcome.e2e_s == pytest.approx(0.040)


def test_content_of_a_kind_that_nobody_knows_is_named() -> None:
    outcome = read(*FOUR, delta(content=[{"type": "hologram", "data": "…"}]) + usage(4) + DONE)
    assert (outcome.kind, outcome.stream.warnings) == ("complete", ("unknown_part",))
    pointing = read(*FOUR, delta(content=[{"type": "reference", "reference_ids": [1]}]) + usage(4) + DONE)
    assert pointing.stream.warnings == ()


def running(text: str, count: int) -> bytes:
    return delta(content=text, more={"usage": {"completion_tokens": count}})


def test_a_usage_in_every_event_counts_each_of_them_exactly() -> None:
    outcome = read(running("a", 1), running("a long piece", 3), running("b", 4), usage(4) + DONE)
    assert (outcome.stream.counted_by, weights(outcome)) == ("running_usage", [1.0, 2.0, 1.0])
    dealt = read(A, delta(content="a long piece"), A, usage(4) + DONE)
    assert dealt.stream.counted_by == "usage"
    assert weights(dealt) == pytest.approx([4 / 14, 48 / 14, 4 / 14])


@pytest.mark.parametrize("counts", [(1, 3, 2), (1, 2, 3)])
def test_counts_that_fall_or_end_elsewhere_are_not_used_and_named(counts: tuple[int, ...]) -> None:
    outcome = read(*[running("a", n) for n in counts], usage(4) + DONE)
    assert outcome.stream.counted_by == "usage"
    assert outcome.stream.warnings == ("usage_jumps",)


def test_pieces_without_further_tokens_give_no_pace_and_no_crash() -> None:
    outcome = outcome_of(answer(A, A, usage(1) + DONE, asked=1))
    assert (outcome.kind, outcome.tokens, outcome.tpot_s, outcome.pace_s) == ("complete", 1, None, None)
    outcome = outcome_of(answer(running("a", 4), running("b", 4), usage(4) + DONE))
    assert (outcome.kind, outcome.pace_s) == ("complete", None)


IDS = [event(choices=[{"index": 0, "text": " x", "token_ids": [n]}]) for n in range(4)]
OTHER = event(choices=[{"index": 1, "delta": {"content": "b"}, "finish_reason": None}])


UNUSUAL: tuple[tuple[Entry, str], ...] = (
    (answer(*FOUR, usage(4)), "no_done"),
    (answer(*FOUR), "no_done"),
    (answer(*FOUR, usage(4) + b"data: [DONE]\n"), "no_empty_line"),
    (answer(*FOUR, usage(4) + b"data: [DONE]"), "no_empty_line"),
    (answer(*[p[:-1] for p in (*FOUR, usage(4), DONE)]), "no_empty_line one_newline"),
    (answer(*FOUR, usage(4)[:-1] + DONE), "one_newline"),
    (answer(*IDS, usage(5) + DONE), "end_token"),
    (answer(*FOUR, usage(5) + DONE), "end_token"),
    (answer(*FOUR, usage(4) + DONE, content_type="application/json"), "content_type"),
    (answer(*FOUR, usage(4) + DONE, status=201), "status"),
    (answer(*FOUR, usage(4) + DONE, informational=[100, 103]), "informational"),
    (answer(*FOUR, OTHER + usage(8) + DONE), "other_choices"),
    (answer(*IDS, OTHER + usage(8) + DONE), "other_choices"),
    (answer(*[p.removeprefix(b"data: ") for p in (*FOUR, usage(4))], DONE), "bare_json"),
    (answer(*FOUR[:3], delta(content="é").replace("é".encode(), b"\xe9"), usage(4) + DONE), "bad_utf8"),
    (answer(gzip.compress(b"".join(FOUR) + usage(4) + DONE), encoding="gzip"), "compressed"),
)


@pytest.mark.parametrize(("entry", "warnings"), UNUSUAL)
def test_what_is_unusual_and_lets_all_tokens_come_is_whole_and_named(entry: Entry, warnings: str) -> None:
    outcome = outcome_of(entry)
    assert (outcome.kind, outcome.tokens, weights(outcome)) == ("complete", 4, [1.0] * 4)
    assert outcome.stream.warnings == tuple(warnings.split())


def test_events_that_one_newline_ends_have_the_instants_of_their_lines() -> None:
    outcome = read(*[p[:-1] for p in (*FOUR, usage(4), DONE)])
    assert (outcome.ttft_s, outcome.tpot_s) == (pytest.approx(0.010), pytest.approx(0.010))


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ((A, A), "unended"),
        ((A, A, usage(2)), "unended"),
        ((A, A, delta(finish="length")), "unended"),
        ((A, A, delta(finish="stop") + DONE), "truncated"),
        ((*FOUR, A + DONE), "overlong"),
        ((*FOUR, A, usage(6) + DONE), "overlong"),
        ((*IDS, usage(6) + DONE), "miscounted"),
        ((running("a", 1), running("a", 2)), "unended"),
        ((*FOUR, b"data: {half"), "malformed"),
        ((delta(content=""), delta(content="", finish="length"), usage(4) + DONE), "textless"),
        ((delta(finish="stop"), usage(0) + DONE), "truncated"),
    ],
)
def test_what_lacks_tokens_or_has_too_many_stays_a_failure(parts: tuple[bytes, ...], kind: str) -> None:
    assert read(*parts).kind == kind


def test_tokens_without_text_are_told_as_the_server_counts_them() -> None:
    """vLLM writes an event without text for a token that is half a character."""
    empty = answer(delta(content=""), delta(content="", finish="length"), usage(4) + DONE)
    told = "the server counts 4 tokens, and none of them has text; finish reason length"
    assert outcome_of(empty).detail == told
    assert outcome_of(empty, exact=False).kind == "textless"


def test_a_stream_that_was_cut_is_not_whole_where_any_number_of_tokens_would_do() -> None:
    cut = answer(running("a", 1), running("a", 2))
    assert outcome_of(cut, exact=False).kind == "unended"
    assert outcome_of(answer(A, delta(content="a", finish="stop")), exact=False).ok


def test_an_encoding_that_cannot_be_read_is_named() -> None:
    outcome = read(b"\x0b\x02\x80", encoding="br")
    assert outcome.kind == "malformed"
    assert "encoded as br" in (outcome.detail or "")


def test_answers_to_requests_without_a_bound_may_have_any_number_of_tokens() -> None:
    entry = answer(*FOUR, A, A, usage(6) + DONE)
    asked = {"request": {"left_out": ["max_tokens"]}}
    assert [o.kind for o in outcomes_of(Log(header={}, entries=(entry,), processes=()))] == ["overlong"]
    assert [o.kind for o in outcomes_of(Log(header=asked, entries=(entry,), processes=()))] == ["complete"]


def test_warnings_are_counted_where_results_are_kept_and_shown() -> None:
    entries = (answer(*FOUR, usage(4)), answer(*FOUR, usage(4) + DONE), answer(A, DONE))
    log = Log(header={}, entries=entries, processes=())
    outcomes = outcomes_of(log)
    assert accounting(outcomes, {})["warnings"] == {"no_done": 1}
    assert count_warnings([o.stream for o in outcomes]) == {"no_done": 1}
    assert became(log) == f"calls: 2 complete, 1 truncated; 1 x {WARNINGS['no_done']}"


def test_what_is_shown_of_a_log_tells_both_first_tokens() -> None:
    log = Log(header={}, entries=(answer(delta(reasoning="hm"), A, A, A, usage(4) + DONE),), processes=())
    assert "1 think: first token p50 0.01 s, first token of the answer p50 0.02 s" in became(log)


def test_a_run_of_which_every_call_failed_is_invalid_and_its_reasons_are_counted() -> None:
    bad = [
        answer(ending="status", detail="429: patience", status=429),
        answer(ending="refused", status=None),
        answer(A, DONE),
    ]
    log = Log(header={}, entries=tuple(bad), processes=())
    found = certify(log, outcomes_of(log))
    assert not found.valid
    assert found.problems == (
        "no call of 3 has a whole answer: refused 1, status 1, truncated 1; the first: 429: patience",
    )
    with pytest.raises(ValueError, match="1 refused, 1 status, 1 truncated"):
        as_others_print(log)
    good = Log(header={}, entries=(*bad, answer(*FOUR, usage(4) + DONE)), processes=())
    assert certify(good, outcomes_of(good)).valid
    empty = Log(header={}, entries=(), processes=())
    assert certify(empty, ()).problems == ("there are no calls",)


def test_every_warning_has_a_test_that_gets_it() -> None:
    seen = {name for _, warnings in UNUSUAL for name in warnings.split()}
    further = {"unknown_part", "usage_jumps", "odd_usage", "some_ids", "after_done"}  # here
    timed = {"one_event"}  # test_load_log.py
    sending = {"redirected", "resent"}  # test_load_redirects.py
    assert seen | further | timed | sending == set(WARNINGS)


def test_text_of_another_choice_is_not_ours() -> None:
    both = event(choices=[{"index": 1, "text": "theirs"}, {"index": 0, "text": "ours"}])
    assert read_stream([(1, both + DONE)]).text == "ours"


def bare(text: str | None = None, **more: Any) -> bytes:
    held = {} if text is None else {"text": text}
    return event(choices=[{"index": 0, **held}], **more)


def test_a_choice_that_holds_nothing_beside_the_usage_is_empty() -> None:
    """A proxy in front of a server of completions ends so: neither text nor delta, not even null."""
    words = [bare(f" t{n}") for n in range(4)]
    end = event(choices=[{"index": 0, "finish_reason": "length"}])
    outcome = read(*words, end, bare(usage={"completion_tokens": 4, "prompt_tokens": 11}), DONE)
    assert (outcome.kind, outcome.tokens, outcome.prompt_tokens) == ("complete", 4, 11)
    assert outcome.stream.warnings == ()
    lost = event(choices=[{"index": 0, "message": {"content": "all of it"}}])
    assert read(*words, lost, DONE).kind == "malformed"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'data: {"error": "`bias` is {\'a"b\': 1}."}\n\n', "`bias` is {'a\"b': 1}."),
        (b'data: {"error": "first line\nsecond line"}\n\n', "first line"),
        (b'data: {"error": {"message": "no "such" model"}}\n\n', '{"message": "no "such" model"'),
    ],
)
def test_an_error_whose_words_break_its_json_is_an_error_in_its_words(data: bytes, told: str) -> None:
    outcome = read(A, data)
    assert outcome.kind == "error_event"
    assert (outcome.detail or "").startswith(told)


def test_words_that_only_begin_like_an_error_stay_malformed() -> None:
    assert read(A, b'data: {"errors": "x"y"}\n\n').kind == "malformed"


@pytest.mark.parametrize(
    ("parts", "warnings", "counted_by"),
    [
        ((*FOUR, usage(4), DONE), (), "usage"),
        ((*FOUR, usage(4.0), DONE), (), "usage"),  # type: ignore[arg-type]
        ((*FOUR, usage(4.5), DONE), ("odd_usage",), "chunks"),  # type: ignore[arg-type]
        ((*FOUR, usage("4"), DONE), ("odd_usage",), "chunks"),  # type: ignore[arg-type]
        ((*FOUR, usage(-1), DONE), ("odd_usage",), "chunks"),
        ((*FOUR, usage(4, prompt_tokens_details=[1]), DONE), (), "usage"),
        ((*FOUR, usage(4, prompt_tokens_details={"cached_tokens": "no"}), DONE), ("odd_usage",), "usage"),
        ((*FOUR[:3], DONE, A), ("after_done",), "chunks"),
    ],
)
def test_counts_and_output_that_are_odd_are_named(
    parts: tuple[bytes, ...], warnings: tuple[str, ...], counted_by: str
) -> None:
    outcome = read(*parts)
    assert outcome.kind == "complete"
    assert (outcome.stream.warnings, outcome.stream.counted_by) == (warnings, counted_by)
    assert all(name in WARNINGS for name in warnings)


def test_ids_of_some_events_alone_are_named_and_not_used() -> None:
    told = event(choices=[{"index": 0, "text": "a", "token_ids": [5]}])
    outcome = read(told, bare("b"), told, told, usage(4), DONE)
    assert (outcome.kind, outcome.stream.counted_by) == ("complete", "usage")
    assert outcome.stream.warnings == ("some_ids",)
    assert outcome.stream.token_ids is None


def test_a_reason_that_is_cut_says_so() -> None:
    long = "x" * 2000
    assert reason_of(json.dumps({"error": {"message": long}}).encode()) == "x" * 299 + "…"
    assert reason_of(long.encode()) == "x" * 500 + "…"
    assert reason_of(b"short") == "short"


@pytest.mark.parametrize(
    ("parts", "bounded", "found"),
    [
        # two tokens without text, or merged into others
        ((A, delta(content="a", finish="length"), DONE), True, ("complete", 4, "limit")),
        ((*FOUR, DONE), True, ("complete", 4, "limit")),
        # the server ended by itself, and nobody knows after how many
        ((A, delta(content="a", finish="stop"), DONE), True, ("truncated", 2, "chunks")),
        # more events than tokens were asked for: the limit was another one
        ((A, *FOUR, DONE), True, ("overlong", 5, "chunks")),
        # a count is better than a limit
        ((A, delta(content="a", finish="length"), usage(2) + DONE), True, ("truncated", 2, "usage")),
        ((delta(finish="length"), DONE), True, ("truncated", 0, "chunks")),
        ((A, delta(content="a", finish="length"), DONE), False, ("complete", 2, "chunks")),
    ],
)
def test_an_answer_that_nobody_counts_is_as_long_as_the_limit_at_which_it_ends(
    parts: tuple[bytes, ...], bounded: bool, found: tuple[str, int, str]
) -> None:
    outcome = outcome_of(answer(*parts), bounded=bounded, length_counts=True)
    assert (outcome.kind, outcome.tokens, outcome.stream.counted_by) == found
    assert sum(weights(outcome)) == pytest.approx(outcome.tokens)
    assert outcome_of(answer(*parts), bounded=bounded).stream.counted_by != "limit"
