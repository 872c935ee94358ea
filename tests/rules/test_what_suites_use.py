"""Every metric and every parameter is used: by a suite that is shipped, or by one that a command or a document makes.

A metric is used where a shipped suite names it, where a published run of a shipped suite measured it, or where the
suite that ``paceline load`` writes measures it. A parameter is used where a shipped suite sets it. What needs files of
the user's own can stand in no shipped suite: a command sets it (``COMMANDS``), or a document or an example shows a
suite that does. Families that other tools' results are read into measure nothing, and are left out.
"""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from shipped_suites import all_shipped

from paceline.base import aliases
from paceline.base.families.family import Family, family_names, load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.load import Side, suite_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "paceline"
FAMILIES = [family for family in map(load_family, family_names()) if not family.internal]
COMMANDS = {
    "endpoint": [*SOURCE.glob("workflows/load*.py"), *SOURCE.glob("cli/measuring/load*.py")],
    "custom": [SOURCE / "workflows" / "foreign_kernels.py"],
}
"""Operations of which no suite is shipped, since servers and kernels are somebody's, and what writes theirs."""
MEASURED = re.compile(rb'"suite":"([^"]+)","suite_version":\d+,"family":"(\w+)".*?"metric":\{"name":"(\w+)"')
"""In a line of a record: whose metric was measured."""


def keys_of(data: Any) -> Iterator[str]:
    """Yield all keys of nested mappings and lists."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key)
            yield from keys_of(value)
    elif isinstance(data, list):
        for value in data:
            yield from keys_of(value)


@cache
def shipped() -> list[tuple[Family, Mapping[str, Any]]]:
    """Return the shipped suites as mappings, with their families."""
    loaded = all_shipped().values()
    return [(suite.family, suite.model.model_dump(mode="json", by_alias=True)) for suite in loaded]


def set_in(suites: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, set[str]]:
    """Return by family what suites set or vary."""
    found: dict[str, set[str]] = defaultdict(set)
    for family, data in suites:
        for part in ("workload", "matrix", "zip", "tiers"):
            found[family] |= set(keys_of(data.get(part)))
    return found


def named_in(family: Family, data: Mapping[str, Any]) -> set[str]:
    """Return the metrics that a suite names: compares, claims, or asks in a premise."""
    words = {*keys_of(data.get("metrics"))}
    text = str({part: data.get(part) for part in ("claims", "premises", "tuning", "protocol")})
    return words | {m.name for m in family.metrics if re.search(rf"'{m.name}'", text)}


@cache
def measured() -> frozenset[tuple[str, str]]:
    """Return the families and metrics of which published runs of shipped suites have a value, by today's names."""
    suites = {*content.suite_files(), *aliases.SUITES.table}
    found = set()
    for path in (ROOT / "results" / "published").rglob("*.jsonl.gz"):
        with gzip.open(path) as file:
            found |= {hit.groups() for line in file if (hit := MEASURED.search(line)) is not None}
    told = {(s.decode(), f.decode(), m.decode()) for s, f, m in found}
    return frozenset((f, aliases.METRICS.table.get(m, m)) for s, f, m in told if s in suites)


def documented() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the suites, or parts of suites, that documents and examples show, with the family of their operation."""
    texts = [p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "examples").rglob("*.yaml")]
    for page in (ROOT / "docs").rglob("*.md"):
        texts += re.findall(r"^```ya?ml\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    for text in texts:
        if not re.search(r"^workload:", text, re.M):
            continue
        data = yaml.safe_load(text)
        operation = data["workload"]["op"]
        for family in FAMILIES:
            if operation in family.operations and data.get("family", family.name) == family.name:
                yield family.name, data


def by_command(family: Family, parameter: str) -> bool:
    """Tell whether the command that writes the suites of an operation sets a parameter of it."""
    for operation, files in COMMANDS.items():
        if operation in family.operations and parameter in {p.name for p in family.parameters_for(operation)}:
            text = "".join(path.read_text(encoding="utf-8") for path in files)
            if re.search(rf"[\"']{parameter}[\"']|\b{parameter}=", text):
                return True
    return False


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_metric_is_named_or_measured_by_a_suite(family: Family) -> None:
    named = {name for own, data in shipped() if own is family for name in named_in(family, data)}
    written = yaml.safe_load(
        suite_of([Side(label="server", options={}, server=None, counted_by="words")], {"rate_per_s": 1.0})
    )
    if written["family"] == family.name:
        named |= {m.name for m in family.operations[written["workload"]["op"]].metrics}
    rest = [m.name for m in family.metrics if m.name not in named]
    assert [name for name in rest if (family.name, name) not in measured()] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_parameter_is_set_by_a_suite(family: Family) -> None:
    used = set_in((own.name, data) for own, data in shipped())[family.name]
    used |= set_in(documented())[family.name] | {"sources"}  # which a plan fills in, by the next test
    rest = [p.name for p in family.parameters if p.name not in used]
    assert [name for name in rest if not by_command(family, name)] == []


def test_a_plan_fills_in_the_digest_of_ones_own_files() -> None:
    suite = load_suite(ROOT / "docs" / "examples" / "training" / "network.yaml")
    plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection(tier="quick"))
    assert plan.blocks
    assert all(block["params"]["sources"] for block in plan.blocks)


def test_what_is_used_nowhere_is_found() -> None:
    serving = load_family("serving")
    assert not by_command(serving, "burstiness")
    assert by_command(serving, "warm_up_calls")
    data = {
        "workload": {"op": "serve"},
        "matrix": {"requests": [1]},
        "zip": [{"turns": [1]}],
        "metrics": {"jain": {}},
    }
    assert set_in([("serving", data)])["serving"] == {"op", "requests", "turns"}
    assert named_in(serving, data) == {"jain"}
    assert named_in(serving, {"metrics": {}, "claims": [{"measure": {"metric": "goodput"}}]}) == {"goodput"}
    assert ("serving", "max_rate") not in measured()


def test_no_suite_of_an_operation_whose_suites_commands_write_is_shipped() -> None:
    operations = {data["workload"].get("op") for _, data in shipped()}
    assert not operations & set(COMMANDS)
