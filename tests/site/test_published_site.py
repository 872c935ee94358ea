"""The site of published runs of every family, in a real browser: what made-up records do not have, these do."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_browser import WIDTHS, kinds, visit

from paceline.cli import application
from paceline.records.format.record_file import content_of, lines_of
from paceline.records.store.folder import record_paths
from paceline.spec.content import shipped_root

pytestmark = pytest.mark.browser

FAMILIES = {"collectives", "kernels", "training", "serving", "reasoning"}
"""Families that must have a published run; others are shown as soon as they have one."""


def smallest_by_family(store: Path) -> dict[str, Path]:
    """Return the smallest published record of each family."""
    found: dict[str, Path] = {}
    for path in sorted(record_paths(store), key=lambda p: len(content_of(p)), reverse=True):
        suites = json.loads(next(lines_of(path)))["suites"]
        found |= {suite["family"]: path for suite in suites}
    return {family: path for family, path in found.items() if family != "calibration"}


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("published")
    chosen = smallest_by_family(shipped_root() / "results" / "published")
    for path in {*chosen.values()}:
        target = root / "store" / path.parent.parent.name / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    options = ["site", "build", "--results", str(root / "store"), "--output", str(root / "out")]
    result = CliRunner().invoke(application, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return chosen | {"": root / "out"}


@pytest.fixture(scope="module")
def pages(families: dict[str, Path]) -> list[Path]:
    """Return all pages but those of techniques without a result, which are all alike."""
    found = sorted(families[""].rglob("*.html"))
    return [p for p in found if p.parent.name != "techniques" or "cases/" in p.read_text(encoding="utf-8")]


def test_every_family_is_there(families: dict[str, Path], pages: list[Path]) -> None:
    assert set(families) - {""} >= FAMILIES
    boards = {p.name.split("-")[0] for p in pages if p.parent.name == "boards"}
    assert boards >= FAMILIES


def test_the_claims_page_counts_what_the_command_counts(families: dict[str, Path], pages: list[Path]) -> None:
    store = families[""].with_name("store")
    told = CliRunner().invoke(
        application, ["claims", "--json", "--results", str(store)], catch_exceptions=False
    )
    found = json.loads(told.stdout)
    text = next(p for p in pages if p.name == "claims.html").read_text(encoding="utf-8")
    rows = Counter(re.findall(r'data-verdict="([^"]+)"', text))
    pills = re.search(r'<ul class="pills" aria-label="papers by verdict">(.*?)</ul>', text, re.S)
    assert pills is not None
    written = {name: int(n) for n, name in re.findall(r"<b>(\d+)</b> ([^<]+)</li>", pills[1])}
    assert "not reproduced" in written  # told where no paper has it, too
    written = {name: number for name, number in written.items() if number}
    assert rows == written == found["counts"] == Counter(row["verdict"] for row in found["papers"])
    assert sum(rows.values()) == len(found["papers"]) == 246
    assert len(rows) > 3
    assert all(row["reason"] or row["claims"] for row in found["papers"]), "no row is blank"


def test_the_page_of_claims_is_what_the_published_runs_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shipped_root())
    options = ["claims", "check", "--results", "results/published", "--format", "md"]
    written = CliRunner().invoke(application, options).stdout
    kept = Path("docs/claims.md").read_text(encoding="utf-8")
    assert kept == written, f"paceline {' '.join(options)} > docs/claims.md"
    assert "not testable here" in kept


def test_every_page_is_quiet_offline_and_within_the_width_of_a_telephone(
    browser: Any, pages: list[Path]
) -> None:
    assert len(pages) > 40
    visit(browser, pages, min(WIDTHS), "light", contrast=False)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_board_and_a_case_of_each_family_are_readable_in_the_dark(
    browser: Any, pages: list[Path], family: str
) -> None:
    own = [p for p in pages if p.name.startswith(f"{family}-")]
    chosen = [
        p for p in kinds([*own, pages[0].parents[1] / "index.html"]) if p.parent.name in ("boards", "cases")
    ]
    assert {p.parent.name for p in chosen} == {"boards", "cases"}
    visit(browser, chosen, max(WIDTHS), "dark", contrast=True)


def test_charts_of_every_kind_that_can_be_zoomed_are_drawn(browser: Any, pages: list[Path]) -> None:
    with_plots = [p for p in pages if "data-plot" in p.read_text(encoding="utf-8")]
    assert {p.parent.name for p in with_plots} >= {"boards", "cases"}
    page = browser.new_context(offline=True).new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    for path in with_plots[:6]:
        page.goto(path.as_uri())
        for button in page.get_by_role("button", name="Zoom", exact=True).all():
            button.click()
        count = page.locator("figure[data-plot]").count()
        page.locator(".zoomed canvas").nth(count - 1).wait_for(state="attached")
        assert page.locator(".zoomed canvas").count() == count
    page.context.close()
    assert problems == []
