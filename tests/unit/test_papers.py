"""The claims ledger: what it must hold, what it must refuse, and that every citation in the content resolves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from paceline.base.errors import UserError
from paceline.base.techniques.technique import read_source
from paceline.spec import content
from paceline.spec.files import yaml_file
from paceline.spec.ledger.papers import Paper, load_papers

ROOT = content.shipped_root()
LEDGER = ROOT / "baselines" / "papers.yaml"
FAMILIES = {"collectives", "kernels", "training", "serving", "reasoning", "outside"}

ENTRY = """\
- slug: one
  title: One paper
  family: collectives
  group: quantized
  tier: 1
  method: It does something.
  claim: It is faster.
  testable_claim: It is faster here.
"""


def ledger(folder: Path, text: str) -> Path:
    path = folder / "papers.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_ledger_lists_246_papers_under_distinct_slugs() -> None:
    slugs = [entry["slug"] for entry in yaml_file.load(LEDGER).data]
    assert len(slugs) == len(set(slugs)) == 246
    assert list(load_papers(LEDGER)) == slugs


def test_every_family_is_a_known_one_and_each_has_papers() -> None:
    assert set(get_args(Paper.model_fields["family"].annotation)) == FAMILIES
    assert {paper.family for paper in load_papers(LEDGER).values()} == FAMILIES


@pytest.mark.parametrize("field", ["title", "group", "method", "claim", "testable_claim", "baseline"])
def test_no_text_of_a_paper_is_blank(field: str) -> None:
    assert [paper.slug for paper in load_papers(LEDGER).values() if not getattr(paper, field).strip()] == []


def test_the_outside_family_and_the_outside_tier_go_together_with_a_reason_and_nothing_to_test() -> None:
    for paper in load_papers(LEDGER).values():
        outside = paper.family == "outside"
        assert (paper.tier == "outside") == outside, paper.slug
        assert bool(paper.outside_reason) == outside, paper.slug
        if outside:
            assert paper.testable_claim.startswith("none: "), paper.slug


def test_a_claim_that_cannot_be_tested_says_what_is_lacking() -> None:
    for paper in load_papers(LEDGER).values():
        head, colon, lacking = paper.testable_claim.partition("none:")
        if not head and colon:
            assert lacking.strip(), paper.slug


def test_no_line_of_the_ledger_is_longer_than_160_characters() -> None:
    lines = LEDGER.read_text(encoding="utf-8").splitlines()
    assert [i for i, line in enumerate(lines, start=1) if len(line) > 160] == []


def test_a_well_formed_ledger_loads_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = ledger(tmp_path, ENTRY.replace("slug: one", "slug: two") + ENTRY)
    assert list(load_papers(path)) == ["two", "one"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param(ENTRY + ENTRY, 9, "'one' appears twice", id="a slug given twice"),
        pytest.param(ENTRY + "  seeds: [1]\n", 9, "Extra inputs", id="an unknown key"),
        pytest.param(
            ENTRY.replace("collectives", "outside").replace("tier: 1", "tier: outside"),
            1,
            "'one' lies outside but gives no reason",
            id="outside without a reason",
        ),
        pytest.param(
            ENTRY.replace("collectives", "outside") + "  outside_reason: ''\n",
            1,
            "gives no reason",
            id="outside with an empty reason",
        ),
        pytest.param(ENTRY.replace("collectives", "collective"), 3, "'collectives'", id="an unknown family"),
        pytest.param(ENTRY.replace("tier: 1", "tier: 4"), 5, "Input should be", id="an unknown tier"),
        pytest.param(ENTRY.replace("  claim: It is faster.\n", ""), 1, "required", id="a missing claim"),
        pytest.param(ENTRY + "  slug: again\n", 9, "'slug' appears twice", id="a key given twice"),
        pytest.param("slug: one\n", 1, "list", id="a mapping instead of a list"),
    ],
)
def test_a_bad_ledger_is_refused_with_its_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = ledger(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_papers(path)
    assert (caught.value.where or "").split(":")[:2] == [str(path), str(line)]
    assert message in caught.value.what


def test_a_missing_ledger_is_a_user_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file") as caught:
        load_papers(tmp_path / "papers.yaml")
    assert caught.value.where == str(tmp_path / "papers.yaml")


def cited_by_techniques() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path in sorted((ROOT / "baselines").rglob("*.py")):
        for source in read_source(path, module=f"test:{path.stem}"):
            if source.info.paper is not None:
                found.add((str(path.relative_to(ROOT)), source.info.paper))
    return found


def cited_by_claims() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path in sorted((ROOT / "suites").rglob("*.yaml")):
        for claim in yaml_file.load(path).data.get("claims", []):
            if "paper" in claim:  # a bound of the suite's own cites none
                found.add((str(path.relative_to(ROOT)), claim["paper"]))
    return found


@pytest.mark.parametrize("citations", [cited_by_techniques, cited_by_claims])
def test_every_paper_that_the_content_cites_is_in_the_ledger(
    citations: Callable[[], set[tuple[str, str]]],
) -> None:
    cited = citations()
    assert cited, "nothing cites a paper: the search looks in the wrong place"
    known = load_papers(LEDGER)
    assert sorted((file, slug) for file, slug in cited if slug not in known) == []


def test_no_claim_cites_a_paper_that_lies_outside() -> None:
    papers = load_papers(LEDGER)
    assert [item for item in sorted(cited_by_claims()) if papers[item[1]].family == "outside"] == []
