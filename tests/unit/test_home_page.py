"""The first page: where suites were measured and where not, and what came last."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

from test_site import EVIL, SUITE, Page, measurement, record, render, run_line

from paceline.analysis.changes import LEAST_LEVEL
from paceline.records.store.folder import RunRecord
from paceline.report.boards.standing import select
from paceline.report.site import home

ELSEWHERE = {**SUITE, "suite": "kernels/gemm", "family": "kernels"}


def texts(grid: home.Grid) -> list[list[list[str]]]:
    return [[[cell.text for cell in row] for row in rows] for rows in grid.groups]


def test_gaps_are_visible_and_points_lead_to_their_board() -> None:
    there = record(2, host_class="Another CPU", sizes=(8,))
    boards = select([record(1), there]).boards
    grid = home.coverage_grid(boards, [SUITE, ELSEWHERE])
    assert [h.text for h in grid.headers] == [
        "family",
        "suite",
        "local-cpu, Another CPU",
        "local-cpu, Test CPU, 2 cores",
    ]
    assert texts(grid) == [
        [["collectives", "all-reduce", "1 point, 2026-11-03", "2 points, 2026-11-02"]],
        [["kernels", "gemm", "–", "–"]],
    ]
    assert {cell.href for cell in grid.groups[0][0][2:]} == {f"boards/{b.slug}.html" for b in boards}


def test_suites_of_a_family_share_its_cell() -> None:
    other = {**SUITE, "suite": "collectives/broadcast"}
    grid = home.coverage_grid(select([record(1)]).boards, [SUITE, other])
    (rows,) = grid.groups
    assert rows[0][0].rows == 2
    assert [cell.text for cell in rows[1]] == ["broadcast", "–"]


def test_the_newest_runs_come_first_and_no_more_than_a_few() -> None:
    grid = home.news_grid([record(n, sizes=(8,)) for n in range(1, 9)])
    (rows,) = texts(grid)
    assert [row[0] for row in rows] == [f"2026-11-{day:02d}" for day in (9, 8, 7, 6, 5)]
    assert rows[0][3] == "15 ok, 1 crashed"


def test_a_run_of_many_suites_is_counted_by_family() -> None:
    given = record(1, suites=[{**SUITE, "suite": f"collectives/s{n}"} for n in range(3)] + [ELSEWHERE])
    ((row,),) = texts(home.news_grid([given]))
    assert row[1] == "3 of collectives, 1 of kernels"


def test_the_feed_is_atom_and_its_links_lead_to_pages() -> None:
    files = render(record(1), record(2))
    root = ElementTree.fromstring(files["feed.xml"])
    space = {"a": home.ATOM}
    assert root.tag == f"{{{home.ATOM}}}feed"
    entries = root.findall("a:entry", space)
    assert len(entries) == 2
    for parent in (root, *entries):
        for name in ("id", "title", "updated"):
            assert (parent.findtext(f"a:{name}", namespaces=space) or "").strip()
    hrefs = [link.attrib["href"] for link in root.findall("a:entry/a:link", space)]
    assert len(set(hrefs)) == 2
    assert set(hrefs) <= set(files)
    assert root.findtext("a:updated", namespaces=space) == "2026-11-03T10:00:00.000Z"


def test_a_feed_of_nothing_is_a_feed() -> None:
    assert ElementTree.fromstring(home.feed([])).tag.endswith("feed")


def test_hostile_texts_leave_the_feed_well_formed() -> None:
    # past the record's own checks, which let no control characters in
    run = run_line(1).model_copy(update={"host_class": f"{EVIL}\x00\x0b]]>"})
    given = dataclasses.replace(record(1), run=run)
    root = ElementTree.fromstring(home.feed([given]))
    title = root.findtext(f"{{{home.ATOM}}}entry/{{{home.ATOM}}}title") or ""
    assert EVIL in title


def test_an_empty_site_has_neither() -> None:
    page = Page(render()["index.html"])
    assert "h-coverage" not in page.ids
    assert "h-news" not in page.ids


def test_calibrations_are_no_coverage() -> None:
    run = run_line(1, reason="calibrate")
    given = RunRecord(
        path=Path("x.jsonl"), run=run, measurements=(measurement(run, "ring", 8, 0),), events=(), sealed=True
    )
    assert texts(home.coverage_grid(select([given]).boards, [SUITE])) == [[["collectives", "all-reduce"]]]


def test_the_list_of_boards_has_a_line_for_each_and_the_first_page_stays_small_however_many_rows_they_have() -> (
    None
):
    few, many = (render(record(1, sizes=tuple(8 * 2**i for i in range(n)), launches=2)) for n in (2, 14))
    (row,) = [r for r in Page(many["boards.html"]).rows if "14" in r]
    assert row[1:] == [
        "collectives/all-reduce",
        "local-cpu, Test CPU, 2 cores",
        "latency",
        "native",
        "14",
        "4",
        "14 faster, 14 slower",
        "2026-11-02",
    ]
    assert len(many["index.html"]) < len(few["index.html"]) + 200
    assert len(many["boards.html"]) < len(few["boards.html"]) + 200


def test_the_first_page_begins_with_findings_then_families_hardware_and_what_ran_last() -> None:
    text = render(record(1, launches=6), record(2, launches=6))["index.html"]
    order = [
        text.index(f'id="{name}"') for name in ("h-findings", "h-families", "h-hardware", "h-news", "reading")
    ]
    assert order == sorted(order)
    assert 'href="choose/collectives.html"' in text
    assert "No accelerator was measured" in text
    assert 'class="chart small"' in text


def test_no_change_is_no_news_where_none_could_be_seen() -> None:
    page = render(record(1), record(2))["index.html"]
    assert "No series changed" not in page
    assert "It cannot be seen yet" in page
    assert "0 of " in page


def test_without_decided_evidence_the_first_page_says_so() -> None:
    page = render(record(1, launches=2))["index.html"]
    assert "No comparison is decided yet" in page


def test_a_suite_leads_to_the_board_that_was_measured_last() -> None:
    boards = select([record(1), record(2, host_class="Another CPU")]).boards
    (card,) = home.family_cards(boards)
    last = next(b for b in boards if b.host_class == "Another CPU")
    assert card.suites == (("all-reduce", f"boards/{last.slug}.html"),)
    assert card.num_boards == 2


def test_a_suite_that_several_runners_measured_leads_to_a_board_of_each() -> None:
    shaped = {"name": "netns-cpu", "driver": "local", "device": "cpu"}
    boards = select([record(1), record(2, runner=shaped)]).boards
    (card,) = home.family_cards(boards)
    assert [name for name, _ in card.suites] == ["all-reduce (local-cpu)", "all-reduce (netns-cpu)"]
    assert {href for _, href in card.suites} == {f"boards/{b.slug}.html" for b in boards}


def test_trends_say_from_when_on_a_change_is_seen() -> None:
    young = Page(render(record(1, sizes=(8,)), record(2, sizes=(8,)))["trends.html"])
    (row,) = [r for r in young.rows if r and "more nights" in r[-1]]
    assert row[-1] == f"after {LEAST_LEVEL - 2} more nights"
    old = Page(render(*(record(n, sizes=(8,)) for n in range(1, LEAST_LEVEL + 3)))["trends.html"])
    (row,) = [r for r in old.rows if r and r[-1].startswith("since ")]
    assert row[-1] == f"since 2026-11-{1 + LEAST_LEVEL:02d}"
