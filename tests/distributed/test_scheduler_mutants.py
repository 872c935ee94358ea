"""Known-wrong schedulers get no number, each for its own reason; honest ones are measured beside them.

Calls come in a closed loop, where a machine that is busy with others makes no client late. ``starves`` is no mutant but
an honest scheduler that is bad: it is measured, and its figures show it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.base.techniques.technique import read_source
from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, results_of

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "serving").glob("*.py"))
HONEST = ("orca", "dlpm", "starves")
EXPECTED = {
    "does-nothing": ("refused", r"computes nothing though \d+ requests? wait"),
    "asks-too-much": ("refused", r"computes \d+ tokens of request \d+; \d+ are missing"),
    "raises": ("crashed", r"RuntimeError: no idea"),
    "reads-the-engine": ("refused", r"imports paceline\.families\.serving\.core\.engine"),
    "replaces-the-room": ("refused", r"it replaced|requests would run|tokens; \d+ are allowed|assigns"),
    "writes-a-file": ("refused", r"__builtins__|opened|for writing"),
    "counts-for-itself": ("refused", r"returned dict instead of a Step"),
}


def names_in(files: list[Path]) -> list[str]:
    return [s.info.name for p in files for s in read_source(p, module=f"user:{p.stem}")]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("mutants")
    path = folder / "mutants.yaml"
    wrong = [name for name in names_in(MUTANTS) if name != "starves"]
    path.write_text(
        "suite: serving/mutants\nversion: 1\nfamily: serving\n"
        "description: Known-wrong schedulers must be refused.\n"
        "workload: {op: serve, workload: shared-prefixes, prefixes: 2, prefix_tokens: 64,\n"
        "  tenants: 2, prompt_tokens: 12, output_tokens: 8}\n"
        f"baseline: orca\ntechniques: [{', '.join((*HONEST, *wrong))}]\n"
        "matrix: {arrivals: [closed], concurrency: [4], requests: [24]}\nprotocol: {launches: 1, timeout: 300s}\n"
    )
    return record_of([load_suite(path, extra=MUTANTS)], folder)


@pytest.fixture(scope="module")
def results(record: RunRecord) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results_of(record, "serving")}


def test_every_mutant_has_an_expected_end() -> None:
    assert set(names_in(MUTANTS)) == set(EXPECTED) | {"starves"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_scheduler_that_is_wrong_gets_no_number(name: str, results: dict[str, ConformanceResult]) -> None:
    status, reason = EXPECTED[name]
    assert results[name].status == status, results[name].reason
    assert re.search(reason, results[name].reason or ""), results[name].reason


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_scheduler_beside_them_is_measured(name: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == name and m.metric is not None}
    reasons = {m.reason for m in record.measurements if m.technique == name}
    assert found, reasons
    assert found["failed"].samples == (0.0,) or list(found["failed"].samples or ()) == [0.0]


def test_who_serves_one_request_at_a_time_computes_as_much_and_takes_longer(record: RunRecord) -> None:
    def value(name: str, metric: str) -> float:
        (one,) = [
            m for m in record.measurements if m.technique == name and m.metric and m.metric.name == metric
        ]
        return (one.samples or [0.0])[0]

    assert value("starves", "computed_tokens") == value("orca", "computed_tokens")
    assert value("dlpm", "computed_tokens") < value("orca", "computed_tokens")


def test_the_raw_log_and_the_clients_certificate_stay_with_the_record(record: RunRecord) -> None:
    kept = [m for m in record.measurements if m.technique == "orca" and m.accounting]
    assert kept
    facts = kept[0].accounting or {}
    assert facts["client"]["valid"] is True
    assert facts["outcomes"] == {"complete": 24}
    assert kept[0].artifacts
