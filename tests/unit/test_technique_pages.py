"""Pages of techniques and metrics: everything that is known of one, and nothing of another."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest
from test_site import Page, failed, record, render, run_line

from paceline.analysis.claims.results import ClaimResult
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import family_names, load_family
from paceline.records.store.folder import RunRecord
from paceline.report.boards import techniques as pages
from paceline.report.boards.standing import select
from paceline.spec import content

RING = content.techniques("collectives")["ring"]


def claim(suite: str, technique: str, quote: str) -> ClaimResult:
    return ClaimResult(
        paper=None,
        suite=suite,
        claim_id="c",
        quote=quote,
        scope="bound",
        expectation="ratio ≤ 1",
        metric="latency",
        technique=technique,
        versus=None,
        verdict="not run",
    )


def page_of(files: dict[str, str], name: str) -> str:
    (found,) = [text for path, text in files.items() if path.startswith(f"techniques/collectives-{name}-")]
    return found


def test_a_page_has_card_source_and_the_numbers_of_the_board() -> None:
    files = render(record(1), techniques=[RING])
    text = page_of(files, "ring")
    assert RING.sha256 in text
    assert pages.card(pages.Portrait(family="collectives", name="ring", source=RING)) in unescape(text)
    assert RING.path.read_text(encoding="utf-8") in unescape(text)
    board = next(t for n, t in files.items() if n.startswith("boards/"))
    shown = [row for row in Page(text).rows if row[1:2] == ["ring"]]
    on_board = [set(row) for row in Page(board).rows if "ring" in row]
    assert len(shown) == 2
    for row in shown:
        assert "× [" in row[3]
        assert any(set(row[1:]) <= cells for cells in on_board)


def test_a_page_of_a_technique_of_a_paper_has_its_fidelity_card() -> None:
    source = content.techniques("collectives")["int8-ring"]
    assert source.info.fidelity is not None
    files = render(record(1), techniques=[RING, source])
    text = unescape(page_of(files, "int8-ring"))
    assert "How near it is to its paper" in text
    assert all(sentence in text for sentence in source.info.fidelity.deviations)
    (row,) = [row for row in Page(text).rows if row[:1] == ["clip_sigmas"]]
    assert row == [
        "clip_sigmas",
        "6.0",
        source.info.fidelity.constants["clip_sigmas"].authors,
        "",
        "not compared",
    ]
    assert "How near it is to its paper" not in page_of(files, "ring")


def test_a_technique_that_only_records_know_has_a_page_and_no_source() -> None:
    text = page_of(render(record(1), techniques=[RING]), "tree")
    assert "does not have this technique" in text
    assert "<pre" not in text
    assert len([row for row in Page(text).rows if row[1:2] == ["tree"]]) == 2


def test_a_technique_without_any_number_shows_how_it_ended() -> None:
    (row,) = [row for row in Page(page_of(render(record(1)), "broken")).rows if row[1:2] == ["broken"]]
    assert row[2:] == ["crashed", "–", "", "0", "–"]


def test_entries_of_one_technique_stand_on_one_page() -> None:
    given = record(1)
    lines = [
        m.model_copy(update={"technique": "ring"}) if m.label == "tree" else m for m in given.measurements
    ]
    both = RunRecord(path=given.path, run=given.run, measurements=tuple(lines), events=(), sealed=True)
    (one,) = [p for p in pages.portraits(select([both]).boards, []) if p.name == "ring"]
    assert one.labels == {"ring", "tree"}
    assert one.num_points == 4


def test_claims_are_those_of_the_family_and_of_all_its_names() -> None:
    given = record(1)
    (ring,) = [p for p in pages.portraits(select([given]).boards, [RING]) if p.name == "ring"]
    mine = claim("collectives/all-reduce", "ring", "mine")
    others = [
        claim("training/all-reduce", "ring", "a family's"),
        claim("collectives/all-reduce", "tree", "tree's"),
    ]
    assert pages.claims_of(ring, [mine, *others]) == [mine]


def test_a_board_and_a_point_lead_to_the_pages_of_their_techniques() -> None:
    files = render(record(1))
    hrefs = {f"../{path}" for path in files if path.startswith("techniques/")}
    assert len(hrefs) == 4
    for folder in ("boards/", "cases/"):
        links = {link for name, text in files.items() if name.startswith(folder) for link in Page(text).links}
        assert hrefs <= links


def test_a_long_list_says_how_much_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_ROWS", 1)
    assert "1 more stand on the board" in page_of(render(record(1)), "ring")


def test_names_that_are_no_file_names_get_pages_all_the_same() -> None:
    run = run_line(1)
    lines = (*record(1).measurements, failed(run, "../../etc/passwd", 4096, 0, "no"))
    files = render(RunRecord(path=Path("x.jsonl"), run=run, measurements=lines, events=(), sealed=True))
    assert not [name for name in files if ".." in name]
    assert any("../../etc/passwd" in text for name, text in files.items() if name.startswith("techniques/"))


def test_every_metric_of_every_public_family_is_defined_with_its_contract() -> None:
    text = unescape(render(record(1))["metrics.html"])
    for family in map(load_family, family_names()):
        if family.internal:
            continue
        for metric in family.metrics:
            assert f'id="{family.name}-{metric.name}"' in text
            assert metric.doc in text
            assert contract_id(family.name, metric) in text
            assert all(value in text for value in metric.contract.values())


def test_internal_families_are_left_out() -> None:
    internal = [f.name for f in map(load_family, family_names()) if f.internal]
    assert internal
    text = render(record(1))["metrics.html"]
    assert not [name for name in internal if f'id="family-{name}"' in text]
