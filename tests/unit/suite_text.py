"""One legal suite as text, for tests that change a line of it."""

from __future__ import annotations

from pathlib import Path

from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite

LEGAL = """\
suite: collectives/example
version: 1
family: collectives
description: An example.
workload: {op: all_reduce, payload: gaussian}
baseline: native
techniques:
  - native
  - ring
matrix:
  size_bytes: [4KiB, 1MiB]
  ranks: [2, 4]
zip: []
exclude:
  - {technique: ring, ranks: 4}
tiers:
  quick:
    matrix: {ranks: [2]}
    protocol: {launches: 2}
protocol: {launches: 5}
metrics:
  latency: {margin: 0.02}
claims:
  - id: one
    paper: pccl
    quote: a statement
    measure: {metric: latency, technique: ring, versus: native, where: {ranks: 2}}
    expect: {ratio_at_most: 1.5}
    points_reason: {premise: "ranks that have a core each"}
"""


def write(folder: Path, *changes: tuple[str, str], text: str = LEGAL) -> Path:
    """Write the suite with some of its text replaced; each text to replace must occur."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / "example.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, *changes: tuple[str, str], text: str = LEGAL) -> Suite:
    """Write the suite and read it."""
    return load_suite(write(folder, *changes, text=text))
