"""Margins of times: five per cent, unless a suite says why another one is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.base.families.family import TIME_MARGIN, load_family
from paceline.spec import content
from paceline.spec.suites.suite_file import load_suite

FAMILIES = ("collectives", "kernels", "training", "serving", "reasoning")
VIRTUAL = re.compile(r"virtual|processor time")


@pytest.mark.parametrize("name", FAMILIES)
def test_measured_times_have_a_margin_that_launches_can_resolve(name: str) -> None:
    tight = [
        m.name
        for m in load_family(name).metrics
        if m.unit == "s" and not VIRTUAL.search(" ".join(m.contract.values())) and m.margin < TIME_MARGIN
    ]
    assert tight == []


def unexplained(path: Path) -> list[str]:
    """Return the times of a suite whose margin is not the metric's own and has no comment on its line or above."""
    suite, lines = load_suite(path), path.read_text().splitlines()
    found = []
    for name, setting in suite.model.metrics.items():
        metric = suite.family.metric(name)
        if metric.unit != "s" or setting.margin in (None, metric.margin):
            continue
        place = next(n for n, line in enumerate(lines) if re.match(rf"\s+{name}:", line))
        if "#" not in lines[place] and not lines[place - 1].lstrip().startswith("#"):
            found.append(f"{path.stem}: {name}")
    return found


@pytest.mark.parametrize("name", content.suite_files())
def test_a_suite_says_why_a_time_has_another_margin(name: str) -> None:
    assert unexplained(content.suite_files()[name]) == []


def test_a_margin_without_a_reason_is_found(tmp_path: Path) -> None:
    text = content.suite_files()["tour/all-reduce"].read_text()
    path = tmp_path / "all-reduce.yaml"
    path.write_text(re.sub(r"(latency: \{[^}]*margin: )[0-9.]+", r"\g<1>0.01", text))
    assert unexplained(path) == ["all-reduce: latency"]
    path.write_text(re.sub(r"(latency: \{[^}]*margin: )[0-9.]+(.*)", r"\g<1>0.01\2  # why", text))
    assert unexplained(path) == []
