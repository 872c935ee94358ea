"""A case is called the same from version to version: nights and boards find it by its id.

An id holds what the case's own operation measures: no other operation, no added metric and no wording changes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from package_copy import TOYS, PackageCopy
from representatives import first_of_each
from shipped_suites import shipped

from paceline.base.families.contracts import contract_id, known_contract_ids
from paceline.base.families.family import Metric, family_names, load_family
from paceline.records.format.contracts import unknown
from paceline.records.format.earlier_names import named_today
from paceline.records.format.record import MetricId
from paceline.records.format.record_file import content_of
from paceline.records.store.folder import record_paths
from paceline.spec import content
from paceline.spec.plans.plan import Selection, case_id, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite import Suite

IDS = {
    "collectives/all-reduce": "efd43567d5",
    "kernels/add-rmsnorm": "c3a4e31974",
    "reasoning/early-stopping": "2bce24d992",
    "serving/schedulers": "7bce38cc7b",
    "training/data-parallel": "f37fc9b7b8",  # one-bit-adam has the option by_tensor since
}
"""Suite → digest of the ids of its cases on local-cpu, as of 0.1.0."""
CASE_ID = re.compile(rb'"family":"[^"]*","block":"[^"]*","case_id":"([^"]*)"')
IDENTIFIED_AS_TODAY = 1527
"""Cases in published records that had today's ids when contracts were given versions."""
OPERATIONS = [
    (family, operation) for family in family_names() for operation in load_family(family).operations
]
FROZEN = "ca8d14ef48"
"""Digest of the table of what was published before there were versions: it is never written again."""
NEW = Metric(name="new", unit="s", better="lower", doc="New.", contract={"what": "new"})
ALL_IDS = """
import json, re, sys
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

family, operation = sys.argv[1:3]
runner = load_runner(content.find_runner("local-cpu"))
ids = {}
for name, path in content.suite_files().items():
    text = path.read_text()
    if f"family: {family}\\n" not in text or not re.search(rf"\\bop: (\\[[^]]*\\b)?{operation}\\b", text):
        plan = make_plan([load_suite(path)], runner, Selection())
        cases = [case for block in plan.blocks for case in block["cases"]] + plan.data["skipped"]
        ids[name] = sorted(case["case_id"] for case in cases if "case_id" in case)
print(json.dumps(ids))
"""


def ids_of(suite: Suite) -> str:
    plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection())
    ids = [case["case_id"] for block in plan.blocks for case in block["cases"]]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:10]


def schedulers_with(change: Callable[[Metric], Metric], *more: Metric) -> Suite:
    """Return a suite of serving in whose operation the metrics are others."""
    suite = shipped("serving/schedulers")
    operation = suite.family.operations["serve"]
    changed = replace(operation, metrics=(*(change(m) for m in operation.metrics), *more))
    return replace(
        suite, family=replace(suite.family, operations=suite.family.operations | {"serve": changed})
    )


@pytest.mark.parametrize("name", IDS)
def test_cases_have_the_ids_of_the_first_version(name: str) -> None:
    assert ids_of(shipped(name)) == IDS[name]


def cases_in(path: Path) -> dict[str, dict[str, Any]]:
    """Return by id the first measurement of each case in a record's file, with the names of today."""
    lines: dict[bytes, bytes] = {}
    for line in content_of(path).splitlines():
        if (found := CASE_ID.search(line)) is not None:
            lines.setdefault(found[1], line)
    return {key.decode(): named_today(json.loads(line)) for key, line in lines.items()}


def test_published_cases_keep_their_ids() -> None:
    same = 0
    for path in record_paths(content.shipped_root() / "results" / "published"):
        cases = cases_in(path)
        ids = [
            case_id(load_family(m["family"]), m["params"], m["technique"], m["label"], m.get("options", {}))
            for m in cases.values()
        ]
        kept = sum(then == today for then, today in zip(cases, ids, strict=True))
        assert kept in (0, len(cases)), f"{path.name}: some of its series ended"
        same += kept
    assert same >= IDENTIFIED_AS_TODAY


@pytest.mark.parametrize(
    ("family", "operation"),
    first_of_each(OPERATIONS, lambda case: case[0]),
)
@pytest.mark.full  # what is added changes no case, in the gate; what is gone, by test_rooms_of_…
def test_an_operation_that_is_removed_changes_no_case_of_another(
    family: str, operation: str, copy: PackageCopy
) -> None:
    before = json.loads(copy.run(ALL_IDS, family, operation))
    copy.without(family, operation)
    after = json.loads(copy.run(ALL_IDS, family, operation))
    assert (after == before and any(name.startswith(f"{family}/") for name in after)) or family == "programs"


def test_operations_and_metrics_that_are_added_change_no_case(copy: PackageCopy) -> None:
    before = json.loads(copy.run(ALL_IDS, "no", "operation"))
    for toy in sorted(TOYS.iterdir()):
        copy.with_toy(toy.name)
    assert json.loads(copy.run(ALL_IDS, "no", "operation")) == before


def test_a_metric_that_is_added_or_said_better_changes_no_id() -> None:
    first = IDS["serving/schedulers"]
    assert ids_of(schedulers_with(lambda m: m, NEW)) == first
    assert ids_of(schedulers_with(lambda m: replace(m, doc="Better.", contract={"said": "better"}))) == first
    for family in family_names():
        for metric in load_family(family).metrics:
            assert contract_id(family, replace(metric, contract={})) == contract_id(family, metric)


def test_a_changed_meaning_changes_the_ids_of_its_contract_and_of_its_cases() -> None:
    def raised(metric: Metric) -> Metric:
        return replace(metric, version=2) if metric.name == "ttft_p90" else metric

    assert raised(load_family("serving").metric("ttft_p90")).version == 2
    assert ids_of(schedulers_with(raised)) != IDS["serving/schedulers"]
    assert ids_of(schedulers_with(lambda m: m, replace(NEW, version=2))) != IDS["serving/schedulers"]
    for family in family_names():
        for metric in load_family(family).metrics:
            second = replace(metric, version=2)
            assert contract_id(family, second) != contract_id(family, metric)
            assert known_contract_ids(family, second) == (
                contract_id(family, metric),
                contract_id(family, second),
            )


@pytest.mark.parametrize("change", [{"unit": "ms"}, {"statistic": "max"}, {"name": "another"}])
def test_no_two_quantities_share_a_contract(change: dict[str, str]) -> None:
    latency = load_family("collectives").metric("latency")
    assert contract_id("collectives", replace(latency, **change)) != contract_id("collectives", latency)
    assert contract_id("collectives", replace(NEW, **change)) != contract_id("collectives", NEW)
    assert contract_id("kernels", NEW) != contract_id("collectives", NEW)


def test_the_contracts_that_were_published_are_those_of_today() -> None:
    ids = {
        contract_id(family, metric): family
        for family in family_names()
        for metric in load_family(family).metrics
    }
    assert len(ids) == sum(len(load_family(family).metrics) for family in family_names()), (
        "two metrics share an id"
    )
    table = json.loads(
        (content.shipped_root() / "src/paceline/base/families/first_contracts.json").read_text()
    )
    assert hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:10] == FROZEN


def test_records_of_an_earlier_version_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    latency = load_family("collectives").metric("latency")
    of_record = MetricId(
        name="latency",
        unit="s",
        better="lower",
        statistic="median",
        contract_id=contract_id("collectives", latency),
    )
    monkeypatch.setattr("paceline.records.format.contracts._of_today", lambda *_: replace(latency, version=3))
    assert unknown("collectives", of_record) is None
    told = unknown("collectives", of_record.model_copy(update={"contract_id": "0123456789ab"}))
    assert told == "latency: this version knows no contract 0123456789ab of it"
