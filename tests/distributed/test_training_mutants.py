"""Known-wrong training techniques are refused, each for its own reason; an honest one passes beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline import content
from paceline.drivers.measure import measure
from paceline.families.training.conformance import points
from paceline.plan import Selection, make_plan
from paceline.profile import load_runner
from paceline.store import read_record
from paceline.suite import load_suite
from paceline.technique import read_source
from paceline.testing import ConformanceResult, results_of

MUTANTS = Path(__file__).parents[1] / "mutants"
FOLDERS = {
    "data_parallel": (MUTANTS / "training", "ddp-ring"),
    "pipeline_parallel": (MUTANTS / "pipelines", "1f1b"),
    "sequence_parallel": (MUTANTS / "sequences", "ulysses"),
}
"""For each operation its known-wrong techniques, and an honest one."""
FILES = {op: sorted(folder.glob("*.py")) for op, (folder, _) in FOLDERS.items()}
EXPECTED = {
    "sums-gradients": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "skips-the-tail": ("incorrect", r"step 1: .* of the way beside one process"),
    "halves-gradients": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "rounds-gradients": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "asks-the-seed": ("incorrect", r"step 1.*: .* of the way beside one process"),
    "averages-in-weights": ("refused", r"it sent messages when asked for its weights"),
    "guesses-drift": ("incorrect", r"step 1: (loss|gradient)_\w+ is [\d.]+, and not 0\.\d+"),
    "ships-slices": ("refused", r"it owns shares of parameters that it holds in whole"),
    "trains-in-diagnosis": ("incorrect", r"nothing was learnt"),
    "guesses-later": ("incorrect", r"step \d+: loss_dispersion is [\d.]+, and not"),
    "reads-the-hub": ("refused", r"imports paceline\.families\.training\.hub"),
    "averages-in-shares": ("refused", r"its ranks' shares overlap, or leave gaps"),
    "trains-in-weights": ("refused", r"it changed its model when asked for its weights"),
    "begins-elsewhere": ("refused", r"it changed the weights before the first step"),
    "leaves-messages": ("refused", r"transfers were still in flight when training had ended"),
    "uses-the-default-group": ("refused", r"torch\.nn\.parallel"),
    "says-identical": ("incorrect", r"ranks hold different weights after step"),
    "learns-nothing": ("incorrect", r"nothing was learnt"),
    "explodes": ("incorrect", r"diverged: weights are not finite after a proof"),
    "explodes-late": ("incorrect", r"diverged: rank 0's loss is not finite in window \d"),
    "lies-about-bytes": ("incorrect", r"(wire|peak)_bytes is .*, formula"),
    "goes-around": ("refused", r"imports torch\.distributed"),
    "reads-the-corpus": ("refused", r"imports paceline\.families\.training\.corpus"),
    "forgets-its-state": (
        "incorrect",
        r"a run that was saved and taken up again ends with different weights",
    ),
    "draws-at-random": ("incorrect", r"two runs from one seed end with different weights"),
    "equals-in-name": ("incorrect", r"step 1 with \{\}: .* of the way beside one process"),
    "hides-a-loss": ("refused", r"forward_backward returned no loss on rank 1"),
    "skips-a-sequence": ("incorrect", r"step 1: .* of the way beside one process"),
    "keeps-an-old-head": ("incorrect", r"step 2: .* of the way beside one process"),
    "keeps-all-layers": ("refused", r"it owns shares of parameters that it holds in whole"),
    "sees-no-loss": ("refused", r"forward_backward returned no loss on any rank"),
    "stops-the-clock": (
        "refused",
        r"it replaced paceline\.families\.training\.pipeline\.executor\._processor_ns",
    ),
    "sees-the-future": ("incorrect", r"step 1: .* of the way beside one process"),
    "sees-itself-alone": ("incorrect", r"step 1: .* of the way beside one process"),
    "counts-from-zero": ("incorrect", r"step 1: .* of the way beside one process"),
    "forgets-weights": ("incorrect", r"step 1: .* of the way beside one process"),
}


def names_in(files: list[Path]) -> list[str]:
    return [s.info.name for p in files for s in read_source(p, module=f"user:{p.stem}")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    folder = tmp_path_factory.mktemp("mutants")
    suites = []
    for op, (_, honest) in FOLDERS.items():
        (point,) = points(op)
        lines = "".join(f"  {key}: {value}\n" for key, value in point.items())
        path = folder / f"{op}.yaml"
        path.write_text(
            f"suite: training/{op.replace('_', '-')}-mutants\nversion: 1\nfamily: training\n"
            "why: Known-wrong techniques must be refused.\n"
            f"workload:\n  op: {op}\n  ranks: 2\n{lines}"
            f"baseline: {honest}\ntechniques: [{honest}, {', '.join(names_in(FILES[op]))}]\n"
            "protocol: {launches: 1}\n"
        )
        suites.append(load_suite(path, extra=FILES[op]))
    plan = make_plan(suites, load_runner(content.find_runner("local-cpu")), Selection())
    outcome = measure(plan, suites, folder / "results")
    assert outcome.path is not None
    return {r.technique: r for r in results_of(read_record(outcome.path), "training")}


def test_every_mutant_has_an_expected_end() -> None:
    assert {name for files in FILES.values() for name in names_in(files)} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_mutant_is_refused_for_its_own_reason(name: str, results: dict[str, ConformanceResult]) -> None:
    status, reason = EXPECTED[name]
    said = results[name].problem if status == "ok" else results[name].reason
    assert results[name].status == status, said
    assert said is not None
    assert re.search(reason, said), said


@pytest.mark.parametrize("name", [honest for _, honest in FOLDERS.values()])
def test_an_honest_technique_beside_them_passes(name: str, results: dict[str, ConformanceResult]) -> None:
    assert results[name].status == "ok"
    assert results[name].problem is None
