"""What is written of claims: a reader can check verdicts by eye, and finds the run, the point and its curves."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import record_factory as factory
from hypothesis import given
from hypothesis import strategies as st
from test_site import Page

from paceline.analysis.claims.headlines import ledger
from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.analysis.claims.verdicts import expectation_text
from paceline.records.store.folder import Loaded, RunRecord
from paceline.report.claims.page import claims_page
from paceline.report.claims.text import STATEMENT, decided_by, found_text
from paceline.report.site.build import SiteInput, render_site
from paceline.spec.ledger.papers import load_papers
from paceline.stats.estimates import Estimate

SUITE = "collectives/example"


def found(expect: dict[str, float], value: float, *ends: float, versus: str | None = "native") -> str:
    """Write what was found of a claim that expects this."""
    low, high = ends or (None, None)
    estimate = Estimate(value=value, low=low, high=high, method="t", num_launches=5)
    return found_text(
        ClaimResult(
            paper=None,
            suite=SUITE,
            claim_id="c",
            quote="q",
            scope="bound",
            expectation=expectation_text(expect),
            expect=expect,
            metric="latency",
            technique="ring",
            versus=versus,
            verdict="inconclusive",
            worst=estimate,
        )
    )


@pytest.mark.parametrize(
    ("expect", "numbers", "text"),
    [
        # three digits tell: as before
        ({"ratio_at_most": 0.9}, (1.2812, 1.1612, 1.4234), "1.28 × [1.16, 1.42]"),
        ({"difference_at_most": 0.02}, (0.09021, 0.0625, 0.1181), "0.0902 [0.0625, 0.118]"),
        # the ends lie above the bound, and three digits would put them at it
        ({"ratio_at_most": 1.01}, (1.01313, 1.01249, 1.01378), "1.013 × [1.012, 1.014]"),
        ({"ratio_at_most": 1.01}, (1.01003, 1.010004, 1.01006), "1.01003 × [1.010004, 1.01006]"),
        # on both sides of a bound at which three digits would put one end
        ({"ratio_at_most": 0.37}, (0.3707, 0.3451, 0.3978), "0.371 × [0.345, 0.398]"),
        ({"ratio_at_most": 0.37}, (0.37041, 0.3451, 0.3978), "0.3704 × [0.3451, 0.3978]"),
        # both bounds count
        ({"ratio_at_most": 0.66, "ratio_at_least": 0.59}, (0.62, 0.59004, 0.65), "0.62 × [0.59004, 0.65]"),
        # what lies at the bound is written at it
        ({"ratio_at_most": 0.5}, (0.5, 0.5, 0.5), "0.5 ×"),
        ({"ratio_at_most": 0.3}, (0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2), "0.3 ×"),
        # many digits before the point
        ({"ratio_at_least": 3}, (1234.4, 1200.2, 1270.9), "1234 × [1200, 1271]"),
    ],
)
def test_ends_lie_as_written_where_they_lie(
    expect: dict[str, float], numbers: tuple[float, ...], text: str
) -> None:
    assert found(expect, *numbers) == text


@pytest.mark.parametrize(
    ("bound", "numbers", "text"),
    [
        (1e-5, (1 + 3.1e-7, 1 - 1.2e-7, 1 + 7.4e-7), "ratio − 1 = 3.1e-07 [-1.2e-07, 7.4e-07]"),
        (0.01, (0.9768, 0.9699, 0.98412), "ratio − 1 = -0.0232 [-0.0301, -0.0159]"),
        (0.01, (1.008, 1.006, 1.010003), "ratio − 1 = 0.008 [0.006, 0.010003]"),
        (0, (1.0, 1.0, 1.0), "ratio − 1 = 0"),
        (0, (1.0 + 2**-40, 1.0, 1.0 + 2**-39), "ratio − 1 = 9.09e-13 [0, 1.82e-12]"),
    ],
)
def test_of_equality_it_is_said_how_far_off_it_is(
    bound: float, numbers: tuple[float, ...], text: str
) -> None:
    assert found({"equal_within": bound}, *numbers) == text


def test_a_value_has_its_ends_too() -> None:
    assert found({"value_at_least": 0.99}, 0.97123, 0.9654, 0.97712, versus=None) == "0.971 [0.965, 0.977]"
    assert found({"value_at_most": 1.02}, 1.0193, 1.0191, 1.01996, versus=None) == "1.0193 [1.0191, 1.01996]"
    assert found({"value_at_most": 102400}, 102399.6, 102399.2, 102399.9, versus=None) == (
        "102399.6 [102399.2, 102399.9]"
    )
    assert found({"value_at_most": 3244}, 3243.0, 3243.0, 3243.0, versus=None) == "3243"


def test_what_has_no_interval_or_no_number_says_so() -> None:
    assert found({"ratio_at_most": 1.01}, 1.0104) == "1.0104 ×"
    assert found({"ratio_at_most": 1.01}, math.nan) == "–"
    assert found({"value_at_most": 1.01}, math.inf, versus=None) == "–"


@given(
    bound=st.sampled_from([0.37, 0.99999, 1.0, 1.01, 2.0, 3244.0]),
    offsets=st.lists(st.floats(-0.5, 0.5).map(lambda x: x**9), min_size=3, max_size=3).map(sorted),
)
def test_every_number_of_a_text_is_on_the_side_of_the_bound_on_which_it_is(
    bound: float, offsets: list[float]
) -> None:
    low, value, high = (bound * (1 + offset) for offset in offsets)
    text = found({"ratio_at_most": bound}, value, low, high)
    written = [float(n) for n in re.findall(r"[\d.]+(?:e[-+]\d+)?", text)]
    for number, true in zip(written, (value, low, high), strict=False):
        if abs(true - bound) > 1e-11 * bound:
            assert (number > bound, number < bound) == (true > bound, true < bound), text


def claim(expect: dict[str, float], **measure: str) -> dict[str, object]:
    return {
        "id": "one",
        "paper": "pccl",
        "quote": "a statement",
        "scope": "qualitative",
        "said": {"number": "a statement of the paper", "place": "abstract"},
        "measure": {"metric": "latency", "technique": "ring", "versus": "native", **measure},
        "expect": expect,
    }


def two_points() -> RunRecord:
    """Return a run in which ring is slower than the baseline with 8 bytes, and faster with 4 KiB."""
    run = factory.make_run()
    lines = []
    for size, ratio in ((8, 1.5), (4096, 0.5)):
        params = {"size_bytes": size}
        lines += factory.launches(run, "native", [1.0, 1.01, 0.99, 1.0, 1.0], params=params)
        lines += factory.launches(run, "ring", [ratio, ratio, ratio * 1.01, ratio, ratio], params=params)
    return factory.in_memory(run, lines)


def evaluated(record: RunRecord, expect: dict[str, float]) -> ClaimResult:
    facts = {"suite": SUITE, "family": "collectives", "claims": [claim(expect)]}
    (result,) = evaluate([record], [facts])
    return result


def test_evidence_names_the_run_and_of_several_points_the_one_that_decided() -> None:
    record = two_points()
    result = evaluated(record, {"ratio_at_most": 0.8})
    assert decided_by(result) == f"run {record.run.run_id[:13]} at size_bytes = 8 B"
    page = claims_page([result], ledger(load_papers(), [result]).rows, command="this")
    (row,) = [line for line in page.splitlines() if "| a statement |" in line]
    assert f"run {record.run.run_id[:13]} at size_bytes = 8 B" in row.split("|")[-2]
    alone = factory.in_memory(record.run, [m for m in record.measurements if m.params["size_bytes"] == 8])
    assert decided_by(evaluated(alone, {"ratio_at_most": 0.8})) == f"run {record.run.run_id[:13]}"
    facts = {"suite": SUITE, "family": "collectives", "claims": [claim({"ratio_at_most": 1})]}
    (nobody,) = evaluate([], [facts])
    assert decided_by(nobody) == ""


def test_the_statement_is_said_to_be_in_our_words() -> None:
    result = evaluated(two_points(), {"ratio_at_most": 0.8})
    page = claims_page([result], ledger(load_papers(), [result]).rows, command="this")
    assert "| paper | what it says, in our words | whose number | the paper's number | measured |" in page
    files = dict(render_site(SiteInput(loaded=Loaded(records=[]), bounds=[result])))
    assert any(STATEMENT in row for row in Page(str(files["claims.html"])).rows)


def test_a_verdict_leads_to_the_page_of_the_point_that_decided_it() -> None:
    record = two_points()
    result = evaluated(record, {"ratio_at_most": 0.8})
    given_site = SiteInput(loaded=Loaded(records=[record]), ledger=ledger(load_papers(), [result]).rows)
    files = {name: str(text) for name, text in render_site(given_site) if name.endswith(".html")}
    seen = 0
    for name, text in files.items():
        for href in re.findall(r'<td class="text verdict bad"><a href="([^"]*)">not reproduced</a>', text):
            target = (Path(name).parent / href).as_posix()
            target = re.sub(r"[^/]+/\.\./", "", target)
            assert "size 8 B" in files[target], (name, href)
            seen += 1
    assert seen == 3  # the page of claims, the board and the page of the technique


def test_a_verdict_whose_point_stands_on_no_board_leads_nowhere() -> None:
    result = evaluated(two_points(), {"ratio_at_most": 0.8})
    files = dict(render_site(SiteInput(loaded=Loaded(records=[]), bounds=[result])))
    assert '<td class="text verdict bad"><span>not reproduced</span></td>' in str(files["claims.html"])


def test_papers_can_be_chosen_by_their_premises_and_by_what_would_settle_them() -> None:
    short = {
        "says": "messages are short", "of": {"parameter": "size_bytes"}, "at_most": 4, "settled_by": "gpu",
    }  # fmt: skip
    facts = {
        "suite": SUITE,
        "family": "collectives",
        "claims": [claim({"ratio_at_most": 0.8}) | {"premises": [short]}],
    }
    (result,) = evaluate([two_points()], [facts])
    rows = ledger(load_papers(), [result]).rows
    page = str(dict(render_site(SiteInput(loaded=Loaded(records=[]), ledger=rows)))["claims.html"])
    assert 'data-verdict="not testable here"' in page
    assert 'data-premise="not met" data-settled="needs GPU|needs another setting"' in page
    assert "messages are short: size_bytes ≤ 4, found 8, 4 above" in page
