"""No name that was changed is left where people read: README, documents, suites, pages of the site and ``--help``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from shipped_suites import shipped

from paceline.base import aliases
from paceline.base.families.family import family_names, load_family
from paceline.cli.reference import command_line
from paceline.spec import content

ROOT = Path(__file__).resolve().parents[2]
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(p for p in (ROOT / "docs").rglob("*") if p.suffix in {".md", ".yaml", ".yml"}),
    *(p for p in (ROOT / "suites").rglob("*") if p.suffix in {".md", ".yaml"}),
    *(p for p in (ROOT / "reports").rglob("*") if p.suffix in {".html", ".js"} and "vendor" not in p.parts),
    *(ROOT / "src" / "paceline" / "report").glob("*.py"),
    *(ROOT / "src" / "paceline" / "cli" / "authoring" / "examples").iterdir(),
]
KEPT = {
    "exflow-fewer-hops",
    'className: "beside"',
    "| `alike` | `alike`, `spread`",
    "| `hops` | `int` |",
}
"""A claim's identity, under which its verdicts go on; a style of the site; and in the reference of operations a value
of the parameter ``pace`` and a field of ``influence.Given``, which are named as other things once were."""

OTHERS_WORDS = re.compile(r"(?<![A-Za-z])(?<!of )(courses?|foils?|custody|desks?)(?![a-z])", re.I)
"""Words that no engineer of the field would look for: it is a curve, a run or a rollout, a control or a baseline,
integrity, an event simulator."""
STORED = re.compile(r"[\"`.]courses\b|courses: list")
"""A key of published records."""
OURS = [
    *(
        p
        for folder in ("src", "baselines", "suites", "docs", "reports")
        for p in sorted((ROOT / folder).rglob("*"))
    ),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


def old_names() -> Iterator[str]:
    """Yield every name that was changed, suites without their family, too."""
    for names in (
        aliases.METRICS,
        aliases.OPTIONS,
        *aliases.TECHNIQUES.values(),
        *aliases.PARAMETERS.values(),
    ):
        yield from names.table
    for suite in aliases.SUITES.table:
        yield from (suite, suite.partition("/")[2])


def found_in(text: str, names: Iterable[str]) -> list[str]:
    """Return the old names that a text uses as names.

    One that is no word of the language (it has a ``_``, ``-`` or ``/`` in it) may stand nowhere. One that is may stand
    in sentences, and not as code: alone in backticks or quotes, or before a value.
    """
    for kept in KEPT:
        text = text.replace(kept, "")
    code = " ".join(re.findall(r"`[^`\n]+`", text))
    given = tuple(names)
    found = set()
    for pattern, where in zip(_patterns(given), (text, text, code), strict=True):
        found |= {next(name for name in hit.groups() if name) for hit in pattern.finditer(where)}
    return [name for name in given if name in found]


@cache
def _patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what finds names that are no words of the language, words in quotes, and words before values in code."""
    words = [name for name in names if not re.search(r"[_/-]", name)]
    plain, others = _any_of(words), _any_of(set(names) - set(words))
    return (
        re.compile(rf"(?<![\w/-])({others})(?![\w-])"),
        re.compile(rf"[`\"]({plain})(?=[`\"])|\bmetric: ({plain})\b"),
        re.compile(rf"(?<![\w.])({plain})(?:: |=)[\w\[\"]"),
    )


def _any_of(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or r"(?!)"


@pytest.mark.parametrize("path", READ, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_people_read_has_the_names_of_today(path: Path) -> None:
    assert found_in(path.read_text(encoding="utf-8"), old_names()) == []


def test_one_word_of_the_field_stands_for_one_thing() -> None:
    texts = (
        (p, p.read_text(encoding="utf-8"))
        for p in OURS
        if p.suffix in {".py", ".md", ".yaml", ".html", ".txt", ".j2"} and "vendor" not in p.parts
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), 1)
        if OTHERS_WORDS.search(STORED.sub("", line))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("the foil of bucketing", True),
        ("def _course(point: Point)", True),
        ("class Course:", True),
        ("COURSES = {", True),
        ("of course it is", False),
        ("a desktop, a discourse", False),
        ('accounting["courses"] and `accounting.courses`', False),
    ],
)
def test_such_words_are_found(line: str, found: bool) -> None:
    assert bool(OTHERS_WORDS.search(STORED.sub("", line))) == found


def test_help_has_the_names_of_today() -> None:
    assert found_in(command_line(), old_names()) == []


@pytest.mark.parametrize("family", sorted(family_names()))
def test_metrics_and_parameters_are_explained_by_the_names_of_today(family: str) -> None:
    loaded = load_family(family)
    texts = [m.doc for m in loaded.metrics] + [rule for m in loaded.metrics for rule in m.contract.values()]
    texts += [m.formula for m in loaded.derived] + [p.doc for p in loaded.parameters]
    assert found_in("\n".join(texts), old_names()) == []


@pytest.mark.parametrize("name", sorted(content.suite_files()))
def test_a_shipped_suite_is_written_in_the_names_of_today(name: str) -> None:
    assert shipped(name).located.notes == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the metric token_s falls", ["token_s"]),
        ("`attainment` is a share", ["attainment"]),
        ("measure: {metric: hops, technique: exflow}", ["hops"]),
        ("see training/bad-shards", ["training/bad-shards"]),
        ("see `bad-shards`", ["bad-shards"]),
        ("run with --share", ["--share"]),
        ("`away: last-rank` and `learning: measured`", ["away", "learning"]),
        ("--filter `heavy=4`, by `ways` devices", ["ways", "heavy"]),
        ("what is learning: nothing, the shift away from heavy use; two ways", []),
        ("three hops from rank to rank; SLO attainment; bare_time_per_token; --share-nothing", []),
    ],
)
def test_old_names_are_found_and_words_are_not(text: str, found: list[str]) -> None:
    assert found_in(text, old_names()) == found
