"""Work that is put off, done ahead, at once for several calls or kept from other calls is refused, in all families.

Mutants of the kind that other modules hold to their reasons stand here too, so that one list says which there are.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import fenced_runner, record_of

from paceline.base.techniques.technique import read_source
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, points_of, results_of

MUTANTS = Path(__file__).parents[1] / "mutants"
DIFFERS = r"elements (differ|are outside the bound), first at"
BESIDE_ONE = r"step \d+: .* of the way beside one process"
MOVED: dict[str, tuple[str, str, str]] = {
    "kernels/leaves_calls_to_the_next": ("put off", "incorrect", r"its work was put off"),
    "collectives/works_in_reset": ("ahead", "incorrect", r"elements are outside the bound"),
    "collectives/previous_output": ("another call's", "incorrect", DIFFERS),
    "moved_work/two_calls_at_once": ("at once", "incorrect", DIFFERS),
    "moved_work/leaves_updates_to_the_next": ("put off", "incorrect", BESIDE_ONE),
    "moved_work/two_steps_at_once": ("at once", "incorrect", BESIDE_ONE),
    "training/trains_in_weights": ("put off", "refused", r"it changed its model when asked for its weights"),
    "training/averages_in_weights": ("put off", "refused", r"it sent messages when asked for its weights"),
    "caches/remembers": ("another call's", "incorrect", r"made of what was kept alone, in another process"),
    "moved_work/a_call_behind": ("another call's", "incorrect", r"with all steps exact images are off by"),
    "overlap/begins_early": ("ahead", "incorrect", r"begins before"),
    "speculation/hands_out_drafts": ("ahead", "incorrect", r"the target says|before"),
}
"""File below ``tests/mutants`` → what is done with its work, and the status and reason that it ends with."""
FAMILIES = {"kernels", "collectives", "training", "serving"}
POINTS = {
    "add_rmsnorm": ("kernels", "torch-eager", "tokens: 24, hidden: 96"),
    "all_reduce": ("collectives", "native", "size_bytes: 12300, ranks: 3, payload: gaussian"),
    "data_parallel": ("training", "ddp-naive", ""),
    "cache": ("serving", "full-cache", "requests: 6"),
    "denoise": ("serving", "sequential-denoising", "images: 8, steps: 10, ranks: 2"),
    "overlap": ("serving", "sequential-operators", "batch_rows: 96"),
    "decode": ("serving", "autoregressive", "requests: 2, output_tokens: 30"),
}
"""Operation → family, an honest technique beside the mutants, and the point."""
PROTOCOLS = {
    "kernels": "warmup: none, min_samples: 60, max_samples: 60, max_seconds: 60",
    "collectives": "warmup: none, min_samples: 80, max_samples: 80, max_seconds: 5, kernel_calls: 0",
}


def source_of(name: str) -> tuple[str, str, str]:
    """Return the family, the operation and the name of a mutant."""
    path = MUTANTS / f"{name}.py"
    (source,) = read_source(path, module=f"user:{path.stem}")
    return source.info.family, source.info.implements[0], source.info.name


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    folder = tmp_path_factory.mktemp("moved")
    files = [MUTANTS / f"{name}.py" for name in MOVED]
    found: dict[str, ConformanceResult] = {}
    for family in sorted(FAMILIES):
        suites = []
        # in the sandbox this mutant sees no pass coming, and is honest
        runner = {"runner": str(fenced_runner(folder))} if family == "kernels" else {}
        for operation, (of_family, honest, point) in POINTS.items():
            if of_family != family:
                continue
            names = [name for f, o, name in map(source_of, MOVED) if (f, o) == (family, operation)]
            workload = {"ranks": 2} | points_of("training", operation)[0] if family == "training" else {}
            at = point or ", ".join(f"{key}: {value}" for key, value in workload.items() if key != "op")
            # one that breaks its contract ends its ranks: each has its suite
            for number, name in enumerate(names):
                path = folder / f"{operation}-{number}.yaml"
                protocol = PROTOCOLS.get(family, "timeout: 300s")
                path.write_text(
                    f"suite: {family}/moved-{operation.replace('_', '-')}-{number}\nversion: 1\nfamily: {family}\n"
                    "description: Work that is moved must be refused.\n"
                    f"workload: {{op: {operation}, {at}}}\n"
                    f"baseline: {honest}\ntechniques: [{honest}, {name}]\n"
                    f"protocol: {{launches: 1, {protocol}}}\n"
                )
                suites.append(load_suite(path, extra=files))
        found |= {r.technique: r for r in results_of(record_of(suites, folder / family, **runner), family)}
    return found


def test_each_family_has_mutants_that_move_work_and_there_are_eight_at_least() -> None:
    families = [source_of(name)[0] for name in MOVED]
    assert {family: families.count(family) >= 1 for family in FAMILIES} == dict.fromkeys(FAMILIES, True)
    assert families.count("training") >= 3
    assert families.count("serving") >= 3
    assert len(MOVED) >= 8
    assert {kind for kind, _, _ in MOVED.values()} == {"put off", "ahead", "at once", "another call's"}
    assert {p.stem for p in (MUTANTS / "moved_work").glob("*.py")} <= {Path(name).name for name in MOVED}


@pytest.mark.parametrize("name", sorted(MOVED))
def test_moved_work_is_refused_for_its_own_reason(name: str, results: dict[str, ConformanceResult]) -> None:
    _, status, reason = MOVED[name]
    found = results[source_of(name)[2]]
    assert found.status == status, found.reason
    assert re.search(reason, found.reason or ""), found.reason


@pytest.mark.parametrize("honest", sorted({honest for _, honest, _ in POINTS.values()}))
def test_an_honest_technique_beside_it_is_measured(
    honest: str, results: dict[str, ConformanceResult]
) -> None:
    assert results[honest].status == "ok", results[honest].reason
