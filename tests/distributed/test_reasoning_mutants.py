"""Known-wrong reasoning techniques are refused, each for its own reason; an honest one passes beside them.

Known limits, which no mutant shows because nothing would refuse it:

- A technique sees tokens of traces, so one that parses them and works the problem out by itself is not noticed. It can
  choose only among answers that some trace or probe gave, and pays for those.
- One that keeps a memory in foreign modules, and knows a question again by several of its traces, could spend less in
  all orders but the one that is repeated.
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

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "reasoning").glob("*.py"))
HONEST = ("esc", "greedy", "self-consistency", "thread-weaver")
EXPECTED = {
    "knows-the-answer": ("refused", r"none of its traces answers '7'"),
    "reads-the-problems": ("refused", r"imports paceline\.families\.reasoning\.core\.problems"),
    "asks-its-own-model": ("refused", r"imports paceline\.families\.reasoning\.core\.reasoner"),
    "asks-by-another-name": ("refused", r"imports paceline\.families\.reasoning"),
    "compares-by-itself": ("refused", r"imports paceline\.families\.reasoning\.core\.pairs"),
    "agrees-with-all": ("refused", r"the answer is Agreeable, and not text"),
    "grades-itself": ("refused", r"imports paceline\.families\.reasoning\.core\.answers\.text"),
    "reads-the-environment": ("refused", r"opened '/proc/self/environ'"),
    "remembers-questions": ("incorrect", r"on the same traces it (asks|answers) otherwise"),
    "honest-at-first": ("incorrect", r"on the same traces it (asks|answers) otherwise"),
    "makes-no-sense": ("refused", r"window is 0; 1 or more"),
    "tosses-a-coin": ("incorrect", r"on the same traces it (asks|answers) (otherwise|for others)"),
    "hides-tokens": ("refused", r"it replaced paceline\.families\.reasoning\.api\.requests\.Ledger\.total"),
    "begins-twice": ("refused", r"sample 0 has been begun before"),
    "raises": ("crashed", r"RuntimeError: out of ideas"),
    "never-ends": ("refused", r"no answer after 10000 rounds"),
}


def names_in(files: list[Path]) -> list[str]:
    return [s.info.name for p in files for s in read_source(p, module=f"user:{p.stem}")]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("mutants")
    path = folder / "mutants.yaml"
    path.write_text(
        "suite: reasoning/mutants\nversion: 1\nfamily: reasoning\n"
        "description: Known-wrong techniques must be refused.\n"
        "workload: {op: solve, questions: 10, samples: 4, orders: 4}\n"
        f"baseline: {HONEST[0]}\ntechniques: [{', '.join((*HONEST, *names_in(MUTANTS)))}]\n"
        "protocol: {launches: 1}\n"
    )
    suite = load_suite(path, extra=MUTANTS)
    return record_of([suite], folder)


@pytest.fixture(scope="module")
def results(record: RunRecord) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results_of(record, "reasoning")}


def test_every_mutant_has_an_expected_end() -> None:
    assert set(names_in(MUTANTS)) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_mutant_is_refused_for_its_own_reason(name: str, results: dict[str, ConformanceResult]) -> None:
    status, reason = EXPECTED[name]
    assert results[name].status == status, results[name].reason
    assert re.search(reason, results[name].reason or ""), results[name].reason


def test_what_raises_takes_nobody_with_it(record: RunRecord) -> None:
    whole = [m for m in record.measurements if m.correctness and "input_seed" in m.correctness]
    seeds = {m.technique: (m.correctness or {})["input_seed"] for m in whole}
    assert set(seeds) == set(HONEST)
    assert len(set(seeds.values())) == 1, "all techniques answer the questions of the launch"


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_technique_beside_them_passes(name: str, results: dict[str, ConformanceResult]) -> None:
    assert results[name].status == "ok", results[name].reason
    assert 0 < results[name].measured["accuracy"] <= 1
