"""Traces as they lie about: blocks of other sizes, seconds, fields that are missing, packed files."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import UserError
from paceline.families.serving.core.load.log.outcomes import quantiles
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.core.workloads.traces import (
    NOTES,
    Trace,
    Traced,
    calls_of,
    format_of,
    read_trace,
    wrong_format,
)
from paceline.families.serving.spec import FAMILY


def row(at: float, prompt: int, answer: int, blocks: list[int] | None = None, **more: Any) -> dict[str, Any]:
    shared = {} if blocks is None else {"hash_ids": blocks}
    return {"timestamp": at, "input_length": prompt, "output_length": answer, **shared, **more}


def traced(folder: Path, form: str, *rows: dict[str, Any]) -> Trace:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return read_trace(path, form)


def test_bailians_traces_are_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    turns = (
        row(61.5, 40, 9, [7, 8, 9], chat_id=1, parent_chat_id=-1, type="text", turn=1),
        row(75.0, 66, 5, [7, 8, 9, 10, 11], chat_id=2, parent_chat_id=1, type="text", turn=2),
    )
    trace = traced(tmp_path, "bailian", *turns)
    assert trace.block == 16
    assert [(r.at_s, r.prompt_tokens, r.blocks) for r in trace.requests] == [
        (0.0, 40, (7, 8, 9)),
        (13.5, 66, (7, 8, 9, 10, 11)),
    ]
    one, other = calls_of(trace.requests, 500, seed=1, context=200, block=trace.block)
    assert (len(one.prompt), len(other.prompt)) == (40, 66)
    assert one.prompt == other.prompt[:40]
    assert len(set(other.prompt)) > 20


def test_the_size_of_blocks_is_an_option(tmp_path: Path) -> None:
    trace = traced(tmp_path, "mooncake/64", row(0, 130, 3, [1, 2, 3]), row(500, 128, 3, [1, 4]))
    assert (trace.block, [r.at_s for r in trace.requests]) == (64, [0.0, 0.5])
    one, other = calls_of(trace.requests, 500, seed=1, context=200, block=trace.block)
    assert one.prompt[:64] == other.prompt[:64]
    assert one.prompt[64:128] != other.prompt[64:]


@pytest.mark.parametrize("form", ["mooncake", "mooncake/64"])
def test_blocks_of_another_size_are_told_with_the_option(tmp_path: Path, form: str) -> None:
    with pytest.raises(UserError) as raised:
        traced(tmp_path, form, row(0, 40, 3, [1, 2, 3]))
    assert f"{tmp_path / 'trace.jsonl'}:1: 3 hash_ids for 40 tokens" in str(raised.value)
    assert "trace_format: mooncake/TOKENS" in str(raised.value)


@pytest.mark.parametrize(
    ("told", "read"),
    [("mooncake", ("mooncake", 512)), ("bailian", ("bailian", 16)), ("bailian/32", ("bailian", 32))],
)
def test_a_format_may_name_its_blocks(told: str, read: tuple[str, int]) -> None:
    assert format_of(told) == read
    assert wrong_format(told) is None


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("chatlogs", "no format of traces; expected one of mooncake, bailian, azure, burstgpt, sharegpt"),
        ("azure/16", "names no blocks"),
        ("mooncake/", "names no blocks"),
        ("mooncake/0", "names no blocks"),
        ("mooncake/1.5", "names no blocks"),
        ("mooncake/-4", "names no blocks"),
    ],
)
def test_a_format_that_is_none_is_refused(told: str, words: str) -> None:
    assert words in (wrong_format(told) or "")


def test_blocks_that_scaling_makes_no_whole_number_of_tokens_share_as_much_as_before() -> None:
    """Blocks of 16 tokens at a tenth: half of the tokens were shared, and half of them are."""
    blocks = tuple(range(20))
    request = {"at_s": 0.0, "prompt_tokens": 320, "output_tokens": 10}
    requests = [
        Traced(**request, blocks=blocks),
        Traced(**request, blocks=(*blocks[:10], *range(100, 110))),
    ]
    for scale, shared in ((1.0, 160), (0.1, 16), (0.05, 8)):
        one, other = calls_of(requests, 50_000, seed=3, scale=scale, context=400, block=16)
        same = [a == b for a, b in zip(one.prompt, other.prompt, strict=True)]
        assert len(one.prompt) == 320 * scale
        assert same == [True] * shared + [False] * (len(same) - shared)


OPTIONAL = (
    row(0, 100, 5),
    {"timestamp": 10, "input_length": 100},
    {"timestamp": 20, "input_length": 100, "output_length": None},
    {"session_id": "a", "delay": 3000, "input_length": 100, "output_length": 5},
    {"timestamp": 40, "text_input": "hello", "output_length": 5},
    row(50, 100, 0),
    row(60, 200, 7, hash_ids=None),
)


def test_requests_that_lack_a_field_are_left_out_and_counted_by_it(tmp_path: Path) -> None:
    trace = traced(tmp_path, "mooncake", *OPTIONAL)
    assert [(r.at_s, r.prompt_tokens) for r in trace.requests] == [(0.0, 100), (0.06, 200)]
    assert trace.missing == {"input_length": 1, "output_length": 2, "timestamp": 1}
    assert trace.left_out == 5


def test_a_trace_of_which_all_requests_lack_a_field_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="prompt and an answer; 2 lack input_length"):
        traced(
            tmp_path, "mooncake", *[{"timestamp": n, "inputLength": 4, "output_length": 3} for n in (1, 2)]
        )


@pytest.mark.parametrize(
    ("form", "text", "missing"),
    [
        (
            "azure",
            "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-29 00:00:01,1,21,5\n2024-10-29 00:00:02,0,7,\n",
            {"GeneratedTokens": 1},
        ),
        (
            "burstgpt",
            "Timestamp,Session ID,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
            "5,,m,21,5,26,x\r\n,,m,21,5,26,x\r\n",
            {"Timestamp": 1},
        ),
    ],
)
def test_cells_that_are_empty_are_counted_too(
    tmp_path: Path, form: str, text: str, missing: dict[str, int]
) -> None:
    (tmp_path / "trace.csv").write_bytes(text.encode())
    trace = read_trace(tmp_path / "trace.csv", form)
    assert (len(trace.requests), trace.left_out, trace.missing) == (1, 1, missing)


def test_a_packed_trace_is_read_whatever_its_name(tmp_path: Path) -> None:
    data = gzip.compress((json.dumps(row(5, 30, 3)) + "\n").encode())
    (tmp_path / "trace").write_bytes(data)
    trace = read_trace(tmp_path / "trace", "mooncake")
    assert [r.prompt_tokens for r in trace.requests] == [30]
    assert trace.sha256 == hashlib.sha256(data).hexdigest()
    (tmp_path / "trace").write_bytes(data[:-9])
    with pytest.raises(UserError, match="cannot read the trace"):
        read_trace(tmp_path / "trace", "mooncake")


def test_a_record_keeps_what_was_left_out_and_a_point_takes_the_blocks(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    rows = (row(0, 40, 4, [1, 2, 3]), row(1, 40, 4, [1, 2, 4]), {"timestamp": 2, "input_length": 9})
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode()))
    params = {p.name: p.default for p in FAMILY.parameters} | {
        **{"op": "serve", "workload": "trace", "arrivals": "trace", "requests": 2},
        **{"trace": str(path), "trace_format": "bailian", "rate_per_s": 2.0},
    }
    one, other = draw_workload(params, 512, 1).calls
    assert one.prompt[:32] == other.prompt[:32]
    assert one.prompt[32:] != other.prompt[32:]
    facts = trace_facts(params)["trace"]
    assert (facts["requests"], facts["left_out"], facts["missing"]) == (2, 1, {"output_length": 1})


def test_what_is_unusual_about_requests_is_counted(tmp_path: Path) -> None:
    trace = traced(
        tmp_path,
        "mooncake",
        row(50, 100, 5, [1]),
        row(10, 100, 5),
        row(20, 100, 0),
        row(30, 0, 5),
        row(40, 100, 5, [2]),
        row(35, 100, 5, hash_ids=[]),
    )
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 0.025, 0.03, 0.04])
    assert trace.left_out == 2
    assert trace.notes == {"empty_answer": 1, "empty_prompt": 1, "out_of_order": 2, "without_blocks": 2}
    assert trace.notes.keys() <= NOTES.keys()


def test_a_total_that_is_none_is_counted(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,m,21,5,26,x\n6,m,21,5,99,x\n7,m,21,5,,x\n8,m,21,5,many,x\n"
    )
    assert read_trace(tmp_path / "trace.csv", "burstgpt").notes == {"total_differs": 2}


def test_instants_without_an_offset_among_others_are_counted(tmp_path: Path) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = ("2024-10-29 01:00:01,1,2\n", "2024-10-29 03:00:02+02:00,1,2\n", "2024-10-29 01:00:03,1,2\n")
    (tmp_path / "trace").write_text(head + "".join(rows))
    trace = read_trace(tmp_path / "trace", "azure")
    assert [r.at_s for r in trace.requests] == [0.0, 1.0, 2.0]
    assert trace.notes == {"without_offset": 2}
    (tmp_path / "trace").write_text(head + rows[0] + rows[2])
    assert read_trace(tmp_path / "trace", "azure").notes == {}


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("mooncake", '{"timestamp": 0, "timestamp": 9, "input_length": 3, "output_length": 3}', "twice"),
        ("mooncake", json.dumps(row(0, 3, 3, hash_ids=0)), "hash_ids is no list"),
        ("mooncake", json.dumps(row(0, 3, 3, hash_ids="")), "hash_ids is no list"),
        (
            "azure",
            "TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n2024-10-29 00:00:01,1,2,3\n",
            "the heading has ContextTokens twice",
        ),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path: Path, form: str, text: str, words: str) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(UserError, match=words):
        read_trace(tmp_path / "trace", form)


def point(path: Path, **changed: Any) -> dict[str, Any]:
    return {p.name: p.default for p in FAMILY.parameters} | {
        **{"op": "serve", "workload": "trace", "arrivals": "trace", "requests": 3, "trace": str(path)},
        **{"rate_per_s": 2.0, **changed},
    }


def test_a_record_tells_how_lengths_and_instants_were_changed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = (row(0, 100, 4), row(1000, 250, 20), row(3000, 1000, 40), row(9000, 7, 7))
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    params = point(path, trace_scale=0.1)
    facts = trace_facts(params)["trace"]
    assert (facts["requests"], facts["used"]) == (4, 3)
    # 0.4 tokens became one; 25, 10, 2, 100 and 4 are whole.
    assert facts["scaled"] == {
        **{"factor": 0.1, "rounded": 1, "raised_to_one": 1, "tokens": 142, "tokens_before": 1414},
    }
    calls = draw_workload(params, 512, 1).calls
    assert facts["instants_times"] == 0.5
    assert [c.at_s for c in calls] == [0.0, 0.5, 1.5]
    plain = trace_facts(point(path, arrivals="poisson"))["trace"]
    assert plain.keys() == {"format", "sha256", "requests", "used", "left_out"}


def test_requests_of_one_instant_are_not_spread_to_a_rate_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row(5, 30, 3)) + "\n" for _ in range(4)))
    with pytest.raises(UserError, match="have one instant"):
        draw_workload(point(path), 512, 1)
    assert [c.at_s for c in draw_workload(point(path, requests=1), 512, 1).calls] == [0.0]
    assert [c.at_s for c in draw_workload(point(path, arrivals="at-once"), 512, 1).calls] == [0.0] * 3


def test_gaps_of_no_time_are_in_the_distribution_of_gaps() -> None:
    found = quantiles("gap_s", "share", [0.0, 0.0, 0.0, 0.5])
    assert found["gap_s"][74] == 0.0
    assert found["gap_s"][75] == 0.5
    assert quantiles("gap_s", "share", [0.1]) == {}
