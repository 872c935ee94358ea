"""The site shows what measured tests found: from a fresh file, an old one, none, and one that cannot be read."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_site import Page, record

from paceline.base.errors import UserError
from paceline.cli import application
from paceline.cli.publishing.building import measured_tests
from paceline.records.store.folder import Loaded
from paceline.records.store.health import FoundHealth, Health, path_of, read_health
from paceline.report.runs import health
from paceline.report.site.data import Site, SiteInput
from paceline.report.site.kinds.reliability import reliability_page

DAY = date(2026, 11, 20)
SLOW, WIDE, GOOD = (
    "tests/slowdowns/test_help.py::test_a",
    "tests/netns/test_netns.py::test_b",
    "tests/unit/x.py::test_c",
)
FIGURE = {"value": 1.3034, "low": 1.139, "high": 1.49, "unit": "ratio", "most": 1.0, "turns": 6}


def one(outcome: str, *tries: dict[str, Any]) -> dict[str, Any]:
    usual = {"passed": outcome == "holds", "seconds": 2.0, "others_cores": 0.1, "stolen": 0.0, "reason": ""}
    return {"outcome": outcome, "tries": [{**usual, **t} for t in tries or ({},)]}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "commit": "0123456789abcdef",
        "changed": False,
        "began": "2026-11-20T02:17:00Z",
        "seconds": 400.0,
        "machine": {"processor": "AMD <EPYC>", "cores": 2, "python": "3.11.2", "kernel": "6.1"},
        "outcomes": {
            WIDE: one(
                "cannot tell now", {"others_cores": 0.3}, {"others_cores": 0.9, "reason": "assert 0.6 <= 0.5"}
            ),
            SLOW: one("does not hold", {"figures": {"help": FIGURE, "note": "seen"}, "reason": "too slow"}),
            GOOD: one("holds", {"figures": {"a time": {"value": 0.1, "unit": "s"}}}),
        },
        **changes,
    }


def page(found: FoundHealth, built: date | None = DAY) -> tuple[str, list[list[str]]]:
    """Return the part of the page that is about measured tests: its text, and the rows of its tables."""
    given = SiteInput(loaded=Loaded(records=[record(1)]), health=found, built=built)
    text = reliability_page(Site(given))
    part = text[text.index('<h2 id="measured-tests">') :]
    return part, [row for row in Page(text).rows if row and "::test_" in row[0]]


def written(folder: Path, content: Any) -> Path:
    path = path_of(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def found(folder: Path, content: Any) -> FoundHealth:
    return read_health([written(folder, content)])


def test_a_fresh_file_is_shown_with_its_counts_machine_and_commit(tmp_path: Path) -> None:
    text, rows = page(found(tmp_path, document()))
    for words in (
        "1 holds, 1 does not hold, 1 cannot tell now",
        "2026-11-20, the day on which this site was built",
        "0123456789ab<",
        "AMD &lt;EPYC&gt;, 2 cores; Python 3.11.2, Linux 6.1",
    ):
        assert words in text
    assert rows == [
        [
            "slowdowns/test_help.py::test_a",
            "does not hold",
            "help: 1.303 [1.139, 1.49] ratio (1 at most)",
            "too slow (others took 0.10 cores, 0.0% of the time was stolen)",
        ],
        [
            "netns/test_netns.py::test_b",
            "cannot tell now",
            "–",
            "assert 0.6 <= 0.5 (others took 0.90 cores in 2 tries, 0.0% of the time was stolen)",
        ],
    ]


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (-1, "which is after the day on which this site was built"),
        (0, "the day on which this site was built"),
        (1, "1 day before this site was built"),
        (7, "7 days before this site was built"),
        (8, "8 days before this site was built: it is old"),
        (400, "400 days before this site was built: it is old"),
    ],
)
def test_its_age_is_told_from_the_day_of_the_build(days: int, words: str, tmp_path: Path) -> None:
    text, _ = page(found(tmp_path, document()), DAY + timedelta(days=days))
    assert f"2026-11-20, {words}<" in text


def test_without_a_day_of_the_build_there_is_no_age(tmp_path: Path) -> None:
    text, _ = page(found(tmp_path, document()), None)
    assert "<dd>2026-11-20</dd>" in text


def test_where_every_test_holds_there_is_no_table(tmp_path: Path) -> None:
    text, rows = page(found(tmp_path, document(outcomes={GOOD: one("holds")}, changed=True, commit="")))
    assert rows == []
    assert "Every one of them holds." in text
    assert "– and changes that are in none" in text


def test_without_a_file_the_page_says_which_command_makes_one() -> None:
    text, rows = page(read_health([]))
    assert rows == []
    assert "make test-measured" in text
    assert "health/measured.json" in text


MALFORMED: dict[str, tuple[Any, str]] = {
    "nothing": (b"", "Invalid JSON"),
    "no JSON": (b"{", "Invalid JSON"),
    "no text": (b"\xff\xfe\x00", "Invalid JSON"),
    "another document": ([1], "should be an object"),
    "nested without end": (b"[" * 100_000, "Invalid JSON"),
    "no outcomes": ({k: v for k, v in document().items() if k != "outcomes"}, "outcomes: Field required"),
    "an outcome of its own": (document(outcomes={GOOD: one("perhaps")}), "Input should be"),
    "no tries": (document(outcomes={GOOD: {"outcome": "holds", "tries": []}}), "at least 1 item"),
    "a time without a date": (document(began="yesterday"), "began: Value error, no date of ISO 8601"),
    "no day of any month": (document(began="2026-13-45T00:00:00Z"), "began: Value error, month must be"),
    "a number that is none": (json.dumps(document(seconds=float("nan"))).encode(), "finite number"),
    "cores without end": (document(machine={**document()["machine"], "cores": "many"}), "machine.cores"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_file_that_is_none_costs_the_page_a_sentence(name: str, tmp_path: Path) -> None:
    content, problem = MALFORMED[name]
    read = found(tmp_path, content)
    assert read.health is None
    (said,) = read.problems
    assert said.startswith("health/measured.json cannot be read: ")
    assert problem in said
    text, rows = page(read)
    assert '<p class="note">health/measured.json cannot be read' in text
    assert "make test-measured" in text
    assert rows == []


def test_a_folder_and_what_is_too_long_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path_of(tmp_path / "a").mkdir(parents=True)
    assert "not a plain file" in read_health([path_of(tmp_path / "a")]).problems[0]
    monkeypatch.setattr("paceline.records.store.health.MAX_BYTES", 100)
    assert "longer than 100 bytes" in found(tmp_path / "b", document()).problems[0]


def test_figures_of_another_form_are_left_out(tmp_path: Path) -> None:
    figures = {"a": 3, "b": {"value": "x", "unit": "s"}, "c": {"value": None, "unit": "s", "least": 2}}
    read = found(tmp_path, document(outcomes={SLOW: one("does not hold", {"figures": figures})}))
    _, (row,) = page(read)
    assert row[2] == "c: – s (2 at least)"


def test_the_newest_file_of_all_stores_is_shown_and_every_problem_told(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / "old", document(began="2026-11-18T02:17:00Z")),
        written(tmp_path / "new", document(began="2026-11-19T02:17:00Z")),
        written(tmp_path / "none", b"{"),
        path_of(tmp_path / "absent"),
    ]
    read = read_health(paths)
    assert isinstance(read.health, Health)
    assert read.health.day == date(2026, 11, 19)
    assert len(read.problems) == 1
    text, _ = page(read)
    assert "2026-11-19, 1 day before" in text
    assert "cannot be read" in text


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    read = found(tmp_path, document(outcomes={SLOW: one("does not hold", {"reason": "x" * 999 + "end"})}))
    _, (row,) = page(read)
    assert "end (others" in row[3]
    assert len(row[3]) < health.MAX_REASON + 80


@pytest.mark.full  # two whole sites; what the page says is above
def test_the_site_finds_the_file_in_its_store_or_where_it_is_told(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    written(store, document())
    given = written(other, document(outcomes={GOOD: one("holds")}))
    for options, words in (
        ((), "1 holds, 1 does not hold, 1 cannot tell now"),
        (("--measured", str(given)), "1 holds, 0 does not hold, 0 cannot tell now"),
    ):
        target = tmp_path / "site"
        arguments = ["site", "build", "--results", str(store), "--output", str(target), *options]
        done = CliRunner().invoke(application, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert words in (target / "reliability.html").read_text()


def test_a_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        measured_tests(tmp_path / "absent.json", None)
