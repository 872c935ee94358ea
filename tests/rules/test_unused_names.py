"""Nothing is kept that nobody uses: definitions, parameters, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from unused_names import unmeasured_metrics, unread_parameters, unused_definitions

from paceline.base.families.family import family_names, load_family
from paceline.spec.content import shipped_root

ROOT = shipped_root()
CODE = [p for folder in ("src", "baselines") for p in sorted((ROOT / folder).rglob("*.py"))]
USERS = [
    *CODE,
    *(
        p
        for folder in ("tests", "containers", "setup", "docs", "benchmarks")
        for p in (ROOT / folder).rglob("*.py")
    ),
]
TEXTS = [
    *(p for kind in ("html", "j2", "js") for p in (ROOT / "reports").rglob(f"*.{kind}")),
    *(ROOT / "suites").rglob("*.yaml"),
    ROOT / "pyproject.toml",
    ROOT / "Makefile",
]
OF_OTHER_TOOLS = "imported"
"""Its metrics are named by the readers of other tools' files, which are records' code."""


@pytest.mark.timeout(180)  # parses all source and all tests: eleven seconds where nothing else runs
def test_every_definition_is_used_somewhere() -> None:
    assert unused_definitions(CODE, USERS, TEXTS) == []


@pytest.mark.parametrize("family", sorted(family_names()))
def test_every_parameter_is_read_and_every_metric_measured(family: str) -> None:
    code = sorted((ROOT / "src" / "paceline" / "families" / family).rglob("*.py"))
    if family == OF_OTHER_TOOLS:
        code = sorted((ROOT / "src" / "paceline" / "records").rglob("*.py"))
    assert unread_parameters(load_family(family), code) == []
    assert unmeasured_metrics(load_family(family), code) == []


def test_a_definition_that_nobody_names_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "USED = 1\nLEFT = 2\n\n\ndef called(): return USED\n\n\ndef left(): return left()\n\n\n"
        "class Kind:\n    def method(self): return 1\n    def other(self): return called()\n\n\nKind().method()\n"
    )
    found = unused_definitions([path], [path], [])
    assert found == sorted(f"{path}:{at}" for at in ("2 LEFT", "8 left", "13 other"))
