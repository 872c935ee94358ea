"""An operation is a folder and a metric a file: with nothing else added, they are validated, run and compared."""

from __future__ import annotations

import json
import re

import pytest
from package_copy import TOYS, PackageCopy
from representatives import first_of_each

METRICS = {family.name: next((family / "metrics").glob("*.py")).stem for family in sorted(TOYS.iterdir())}
EXPECTED = {
    "collectives": {"toy-shift": 4096.0, "toy-halves": 2048.0},
    "serving": {"toy-alone": 1.0, "toy-pairs": 2.0},
}
"""Values of metrics that no clock and no draw decides."""


@pytest.mark.parametrize(
    ("family",), first_of_each(((name,) for name in sorted(METRICS)), lambda case: "any")
)
@pytest.mark.full
def test_a_folder_and_a_file_are_an_operation_and_a_metric_from_validate_to_compare(
    family: str, copy: PackageCopy
) -> None:
    root = copy.with_toy(family)
    suite, metric = f"{family}/toy", METRICS[family]
    assert "0 mistakes" in copy.command("validate", str(root / "suites" / family / "toy.yaml"), root=root)
    plan = json.loads(copy.command("plan", suite, "--json", root=root))
    assert {b["params"]["op"] for b in plan["blocks"]} == {"toy"} and plan["skipped"] == []
    ended = json.loads(copy.command("run", suite, "--json", "--results", "store", root=root))
    assert ended["statuses"] == {"ok": 4} and ended["failures"] == []
    table = copy.command("compare", "--results", "store", "--wide", root=root)
    assert metric in table
    told = json.loads(copy.command("compare", "--results", "store", "--json", root=root))
    (compared,) = [c for c in told if c["metric"] == metric]
    assert compared["launches"] == 2 and compared["value"] is not None
    if family in EXPECTED:
        values = EXPECTED[family]
        assert compared["value"] == values[compared["technique"]]
        assert compared["baseline_value"] == values[compared["baseline"]]
    assert metric in copy.command("list", "metrics", root=root)


@pytest.mark.parametrize("page", ["add-an-operation", "add-a-metric"])
def test_a_how_to_shows_the_files_that_are_tested(page: str) -> None:
    text = (TOYS.parents[2] / "docs" / "howto" / f"{page}.md").read_text(encoding="utf-8")
    shown = re.findall(r"```(?:python|yaml)\n(.*?)```", text, re.S)
    tested = {path.read_text(encoding="utf-8") for path in TOYS.rglob("*") if path.suffix in (".py", ".yaml")}
    assert shown and set(shown) <= tested
