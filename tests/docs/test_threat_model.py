"""The threat model names mutants, tests and modules that exist, and each mutant is one that a test refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/*.]+(?:\.py|/))`", TEXT)))


def places(name: str) -> list[Path]:
    """Return what a name of the page stands for: a path of the repository, of the engine, or of the mutants."""
    roots = (ROOT, ROOT / "src" / "paceline", ROOT / "tests" / "mutants")
    return [path for root in roots for path in root.glob(name.rstrip("/"))]


@pytest.mark.parametrize("name", NAMED)
def test_what_the_threat_model_names_exists(name: str) -> None:
    assert places(name), name


def test_every_fence_is_shown_by_mutants() -> None:
    rows = TEXT.split("## What each fence stops")[1].split("\n## ")[0].splitlines()[4:]
    fences = [row for row in rows if row.startswith("| ")]
    assert len(fences) > 10
    for row in fences:
        shown = re.findall(r"`([\w/]+\.py)`", row.rsplit("|", 2)[1])
        mutants = [n for n in shown if (ROOT / "tests" / "mutants" / n).is_file()]
        assert mutants, row[:80]


def test_every_named_mutant_is_run_by_a_test() -> None:
    tests = [p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py")]
    named = [Path(n) for n in NAMED if (ROOT / "tests" / "mutants" / n).is_file()]
    assert len(named) > 30
    # tests name a mutant by its technique
    lost = [
        str(n)
        for n in named
        if not any(f'"{n.stem.replace("_", "-")}"' in text or f'"{n.stem}"' in text for text in tests)
    ]
    assert lost == []
