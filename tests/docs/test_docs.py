"""The documents say what the program does: links resolve, every metric and option is there, the tree is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli.metric_tables import filled
from paceline.cli.reference import PAGES
from paceline.records.store.lookup import find_run
from paceline.report.tables.results import board_table
from paceline.spec import content

ROOT = Path(__file__).resolve().parents[2]
PAGES_WITH_LINKS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("suites/**/*.md"),
    *ROOT.glob("results/*.md"),
]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_reference_page_is_what_the_program_says(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "make docs"


def test_units_and_directions_of_metrics_are_those_of_the_program() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert filled(text) == text, "make docs"
    row = "| `accuracy` | ratio | higher |"
    assert row in text
    assert filled(text.replace(row, "| `accuracy` | s | lower |")) == text


def test_a_table_of_metrics_outside_of_a_familys_section_is_found() -> None:
    with pytest.raises(UserError, match=r"docs/metrics\.md:2: a table of metrics in no family's section"):
        filled("## Others\n| metric | formula or meaning |\n|---|---|\n| all | x |\n")


def test_a_row_of_a_metric_that_its_family_lacks_is_found() -> None:
    text = "## Serving\n| metric | formula or meaning |\n|---|---|\n| `jain` | x |\n| `busbw` | y |\n"
    with pytest.raises(UserError, match="busbw") as error:
        filled(text)
    assert "docs/metrics.md:5" in str(error.value)


@pytest.mark.parametrize("page", PAGES_WITH_LINKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("family", sorted(family_names()))
def test_every_metric_is_documented(family: str) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {family.capitalize()}\n")[1].split("\n## ")[0]
    missing = [m.name for m in load_family(family).metrics if f"`{m.name}`" not in section]
    assert not missing


def test_every_suite_is_listed_with_what_it_asks() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("suites/**/README.md"))
    missing = [name for name in content.suite_files() if f"`{name.rpartition('/')[2]}`" not in text]
    assert not missing


def test_every_folder_of_the_tree_exists() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    for line in tree.strip().splitlines():
        if line.startswith(" "):
            continue
        assert (ROOT / line.split()[0]).exists(), line


def test_the_engine_has_few_rooms_and_the_tree_names_each_in_few_lines() -> None:
    entries = [p.name for p in (ROOT / "src" / "paceline").iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 15, entries
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    assert len(tree.strip().splitlines()) <= 30
    packages = {p.name for p in (ROOT / "src" / "paceline").iterdir() if (p / "__init__.py").exists()}
    assert {f"{name}/" for name in packages - {"baselines"}} <= set(tree.split())


def test_modules_named_in_the_tree_exist() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("src/paceline/ ")[1].split("```")[0]
    engine = ROOT / "src" / "paceline"
    folder = engine
    for line in tree.splitlines()[1:]:
        names = re.split(r"\s{2,}", line.strip())[0]
        depth = len(line) - len(line.lstrip())
        if depth == 2:
            folder = engine
        for name in names.replace("…", "").split():
            path = (folder if depth > 2 else engine) / name.rstrip("/")
            assert path.is_dir() or path.with_suffix(".py").exists(), f"{name} in: {line}"
            if name.endswith("/"):
                folder = path


def test_the_table_that_readers_are_shown_is_what_the_program_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = (ROOT / "docs" / "reading-results.md").read_text(encoding="utf-8")
    run = re.search(r"`paceline compare (\S+)`", text)
    assert run
    points = points_of(find_run([ROOT / "results" / "published"], run[1]))
    assert board_table(points, compare_points(points)).render() in text


def test_ten_sentences_say_what_verdicts_mean() -> None:
    text = (ROOT / "docs" / "reading-results.md").read_text(encoding="utf-8")
    sentences = re.findall(r"^\d+\. .*(?:\n   .*)*", text.partition("## ")[0], re.M)
    assert len(sentences) == 10
    assert all(len(re.findall(r"\.(?=\s|$)", s.partition(". ")[2])) == 1 for s in sentences), (
        "one sentence each"
    )
    for word in ("Faster", "Equivalent", "Inconclusive", "One launch"):
        assert any(f"**{word}**" in s for s in sentences)
    for page in ("README.md", "docs/protocol.md"):
        assert "reading-results.md)" in (ROOT / page).read_text(encoding="utf-8")
