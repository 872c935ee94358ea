"""What pages draw of servers under load: distribution functions, single calls, latency against throughput."""

from __future__ import annotations

import re
from typing import Any

import pytest
import record_factory

from paceline.analysis.points import points_of
from paceline.records.store.folder import Loaded
from paceline.report.charts import large
from paceline.report.charts.load import CallBar, calls_chart, share_chart
from paceline.report.points.calls import call_charts, call_grid
from paceline.report.site.build import SiteInput, render_site
from paceline.report.words.names import metric_label

SWEPT = {
    "orca": [(100.0, 0.1), (190.0, 0.2), (180.0, 0.9)],
    "dlpm": [(100.0, 0.1), (200.0, 0.15), (390.0, 0.2)],
}
"""Tokens a second and time to first token at three rates; the first server gives less when it is asked for most."""
CALL = {
    "tenant": "",
    "kind": "complete",
    "due_s": 0.5,
    "sent_s": 0.5,
    "first_s": 0.75,
    "last_s": 1.5,
    "tokens": 4,
}
LOST = CALL | {
    "kind": "refused",
    "due_s": 0.25,
    "sent_s": None,
    "first_s": None,
    "last_s": None,
    "tokens": 0,
}


def page(
    name: str,
    *,
    swept: dict[str, list[tuple[float, float]]] = SWEPT,
    accounting: dict[str, Any] | None = None,
) -> str:
    """Return the page of a board or of its first point, of a sweep over three rates."""
    suite = {
        "suite": "serving/schedulers",
        "version": 1,
        "family": "serving",
        "baseline": "orca",
        "claims": [],
    }
    run = record_factory.make_run(suites=[suite | {"metrics": {"ttft_p90": 0.02}}])
    lines: list[Any] = []
    for label, pairs in swept.items():
        for rate, pair in zip((10, 20, 40), pairs, strict=True):
            for metric, value in zip(("output_tokens_per_s", "ttft_p90"), pair, strict=True):
                lines += record_factory.launches(
                    run,
                    label,
                    [value, value],
                    metric=metric,
                    family="serving",
                    suite="serving/schedulers",
                    block=f"block-{rate}",
                    role="baseline" if label == "orca" else "technique",
                    params={"op": "serve", "rate_per_s": rate},
                    accounting={
                        "courses": [CALL, LOST],
                        "curve": {"ttft_s": [0.1, 0.2], "share_of_calls": [0.5, 1.0]},
                        **(accounting or {}),
                    },
                )
    given = SiteInput(loaded=Loaded(records=[record_factory.in_memory(run, lines)]))
    return next(str(text) for path, text in render_site(given) if path.startswith(name))


def numbers(path: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?[0-9.]+", path)]


def test_a_distribution_function_rises_to_the_top_at_the_largest_value() -> None:
    series = large.Swept(name="a<b", colour="s0", points=((0.5, 0.1, None, None), (1.0, 0.4, None, None)))
    drawn = str(share_chart([series], title="t", x_name="x", y_name="y", x_format=str))
    step = re.findall(r'class="line s0" d="(M[^"]+V[^"]+)"', drawn)[0]
    start, top = numbers(step)[:2], numbers(step)[2:]
    assert start[1] == 330.0
    assert top == pytest.approx([start[0], 192.0, top[2], 54.0, 744.0])
    assert top[2] > top[0]
    assert "a&lt;b" in drawn
    assert "a<b" not in drawn


def test_a_call_is_a_bar_from_when_it_was_due_to_its_last_token() -> None:
    call = CallBar(number=0, name="call 0", due_s=0.0, sent_s=0.25, first_s=0.5, last_s=1.0, failure=None)
    drawn = str(calls_chart("orca", [call], end_s=2.0))
    bars = [
        numbers(b) for b in re.findall(r'<rect class="part s\d" (x="[^"]*" y="34.0" width="[^"]*")', drawn)
    ]
    assert [bar[0] for bar in bars] == pytest.approx([84.0, 166.5, 249.0])
    assert [bar[2] for bar in bars] == pytest.approx([82.5, 82.5, 165.0])


def test_a_call_that_failed_says_how_and_has_no_bar_beyond_what_happened() -> None:
    call = CallBar(
        number=3, name="call 3", due_s=0.0, sent_s=1.0, first_s=None, last_s=None, failure="stalled<"
    )
    drawn = str(calls_chart("orca", [call], end_s=2.0))
    assert drawn.count('y="34.0" width') == 1
    assert "stalled&lt;" in drawn


def test_a_point_shows_its_distributions_and_its_calls_with_their_numbers() -> None:
    text = page("cases/")
    assert "<h2>Distributions</h2>" in text
    assert "share of calls at or below" in text
    assert "First calls of orca" in text and "First calls of dlpm" in text
    told = re.sub(r"<[^>]+>", " ", text).split()
    place = told.index("refused", told.index("ended"))
    assert told[place - 6 : place] == ["250", "ms", "–", "–", "–", "0"]


def test_a_point_tells_what_became_of_calls_and_what_was_left_out_of_their_file() -> None:
    facts = {
        "format": "mooncake",
        "left_out": 7,
        "missing": {"output_length": 5},
        "notes": {"out_of_order": 3},
        "scaled": {"factor": 0.1, "raised_to_one": 4},
        "dropped": {"long_prompt": 9},
        "instants_times": 2.5,
    }
    text = page(
        "cases/",
        accounting={
            "outcomes": {"complete": 90, "refused": 2},
            "warnings": {"redirected": 11},
            "counted_by": ["usage"],
            "trace": facts,
        },
    )
    assert "<h2>What became of calls</h2>" in text
    told = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    # Two launches, each counted once, however many metrics it has.
    for words in (
        "orca complete: 180 ",
        "orca refused: 4 nobody listens at the address",
        "dlpm redirected: 22 the server sent the call on",
        "usage tokens counted by the server&#39;s count of all",
        "all left out: 7",
        "output length: 5 left out: the request lacks this field",
        "out of order: 3 came before the request above it",
        "raised to one: 4 scaling of lengths",
        "long prompt: 9 left out: the prompt has more tokens than the most",
        "instants times: 2.5 factor on the file",
    ):
        assert words in told


@pytest.mark.parametrize("told", [None, 3, "x", [], [["a"]], {"a": "b"}, {"a": {"b": [1]}}, {"<i>": 10**400}])
@pytest.mark.parametrize("key", ["outcomes", "warnings", "counted_by", "trace"])
def test_counts_that_others_write_are_refused_or_harmless(key: str, told: Any) -> None:
    try:
        text = page("cases/", accounting={key: told})
    except (ValueError, AssertionError):
        return
    assert "<i>" not in text


def test_latency_stands_over_throughput_in_the_order_of_the_rates() -> None:
    text = page("boards/")
    assert "What is given, and how slowly" in text
    across, up = metric_label("output_tokens_per_s"), metric_label("ttft_p90")
    drawn = text.split(f'aria-label="{up} against {across} over rate per s, of each technique"')[1]
    base = re.findall(r'<path class="line base" d="([^"]+)"', drawn)[0]
    xs, ys = numbers(base)[::2], numbers(base)[1::2]
    assert len(xs) == 3
    assert xs[0] < xs[2] < xs[1]  # turns back where it gives less
    assert ys[0] > ys[1] > ys[2]  # and is slower all along
    assert "rate_per_s 40" in text


@pytest.mark.parametrize("field", sorted(CALL))
def test_what_others_write_of_a_call_is_refused_or_harmless(field: str) -> None:
    shown = 0
    for value in ("<script>", 10**400, -1, 0, 1e308, -1e308, None, [], {}):
        run = record_factory.make_run()
        calls = [CALL | {field: value}, CALL]
        try:
            made = record_factory.measurement(run, "native", 0, [1.0], accounting={"courses": calls})
        except ValueError:
            continue
        (point,) = points_of(record_factory.in_memory(run, [made]))
        (chart,) = call_charts(point)
        assert "<script>" not in str(chart.graphic)
        assert [len(rows) for rows in call_grid(point).groups] == [2]
        shown += 1
    assert shown >= 1
