"""What is best where: a table for each suite that varies what one chooses by, whose cells lead to points."""

from __future__ import annotations

from collections.abc import Mapping

from test_findings import KB, MB, known, measured
from test_site import Page, render

from paceline.records.store.folder import RunRecord
from paceline.report.boards.choosing import Choice, choices, offers

ALIKE = {"native": 1e-3, "tree": 1e-3}
CROSSING = {KB: {"native": 1e-3, "tree": 0.5e-3}, MB: {"native": 4e-3, "tree": 8e-3}}
ERRORS = {"native": 1e-7, "tree": 1e-7, "lossy": 0.2}
OTHER = "Other CPU, 64 cores"


def of_collectives(*records: RunRecord) -> Choice:
    given = known(*records)
    (found,) = choices("collectives", given.boards, given.of)
    return found


def texts(choice: Choice) -> list[list[str]]:
    return [[cell.text for cell in row] for group in choice.grid.groups for row in group]


def heads(choice: Choice) -> list[str]:
    return [cell.text for cell in choice.grid.headers]


def test_the_best_at_each_size_stands_with_its_ratio() -> None:
    found = of_collectives(measured(1, CROSSING))
    assert heads(found)[-2:] == ["1 KiB", "1 MiB"]
    ((*_, small, large),) = texts(found)
    assert small.startswith("tree, 0.5") and small.endswith("×")
    assert large == "native"
    assert found.metric == "latency" and found.baseline == "native"
    hrefs = [cell.href or "" for cell in found.grid.groups[0][0][-2:]]
    assert all(href.startswith("../cases/") for href in hrefs) and len({*hrefs}) == 2


def test_what_cannot_be_told_apart_is_named_or_counted() -> None:
    three = {KB: ALIKE | {"ring": 1e-3}, MB: ALIKE}
    ((*_, small, large),) = texts(of_collectives(measured(1, three)))
    assert small == "3 alike" and large == "native or tree"


def test_what_loses_quality_is_nobodys_choice() -> None:
    paid: Mapping[int, Mapping[str, float]] = {
        size: {"native": 1.0, "tree": 0.8, "lossy": 0.1} for size in (KB, MB)
    }
    ((*_, small, large),) = texts(of_collectives(measured(1, paid, errors=ERRORS)))
    assert small.startswith("tree, ") and large.startswith("tree, ")


def test_where_only_the_baseline_keeps_its_quality_there_is_a_price_and_no_choice() -> None:
    paid: Mapping[int, Mapping[str, float]] = {size: {"native": 1.0, "lossy": 0.1} for size in (KB, MB)}
    assert of_collectives(measured(1, paid, errors=ERRORS)).paid
    assert not of_collectives(measured(1, CROSSING)).paid
    page = render(measured(1, paid, errors=ERRORS))["choose/collectives.html"]
    assert "Only native keeps its quality here" in page and 'href="../boards/' in page


def test_machines_have_rows_of_their_own() -> None:
    found = of_collectives(measured(1, CROSSING), measured(2, CROSSING, host_class=OTHER))
    assert "machine" in heads(found)
    assert {row[heads(found).index("machine")] for row in texts(found)} == {"Test CPU, 2 cores", OTHER}


def test_a_suite_with_one_size_offers_no_choice() -> None:
    assert offers("collectives", known(measured(1, {KB: ALIKE})).boards) == {}
    assert offers("training", known(measured(1, CROSSING)).boards) == {}


def test_the_first_page_leads_to_it_and_it_to_points() -> None:
    files = render(measured(1, CROSSING))
    assert 'href="choose/collectives.html"' in files["index.html"]
    assert 'href="choose/collectives.html"' in files["boards.html"]
    page = Page(files["choose/collectives.html"])
    cases = [link for link in page.links if link.startswith("../cases/")]
    assert len(cases) == 2 and all(f"cases/{link.rpartition('/')[2]}" in files for link in cases)
    alone = render(measured(1, {KB: ALIKE}))
    assert "choose/collectives.html" not in alone and "choose/" not in alone["index.html"]
