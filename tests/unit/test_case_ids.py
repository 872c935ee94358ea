"""A case is called the same from version to version: nights and boards find it by its id."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from paceline.base.family import Metric
from paceline.spec import content
from paceline.spec.plan import Selection, make_plan
from paceline.spec.profile import load_runner
from paceline.spec.suite import Suite
from paceline.spec.suite_file import load_suite

IDS = {
    "collectives/all-reduce": "efd43567d5",
    "kernels/add-rmsnorm": "c3a4e31974",
    "reasoning/early-stopping": "2bce24d992",
    "serving/schedulers": "7bce38cc7b",
    "training/data-parallel": "f37fc9b7b8",  # one-bit-adam has the option by_tensor since
}
"""Suite → digest of the ids of its cases on local-cpu, as of 0.1.0."""


def ids_of(suite: Suite) -> str:
    plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection())
    ids = [case["case_id"] for block in plan.blocks for case in block["cases"]]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:10]


@pytest.mark.parametrize("name", IDS)
def test_cases_have_the_ids_of_the_first_version(name: str) -> None:
    assert ids_of(load_suite(content.find_suite(name))) == IDS[name]


@pytest.mark.parametrize("identifies", [False, True])
def test_a_new_metric_begins_no_series_of_the_others_unless_it_identifies(identifies: bool) -> None:
    suite = load_suite(content.find_suite("serving/schedulers"))
    new = Metric(
        name="new", unit="s", better="lower", doc="New.", contract={"what": "new"}, identifies=identifies
    )
    more = replace(suite, family=replace(suite.family, metrics=(*suite.family.metrics, new)))
    assert (ids_of(more) == ids_of(suite)) == (not identifies)
