"""One real run of each family, end to end: techniques that pass, and known-wrong ones beside them that are refused.

The gate runs these. All techniques, operations and numbers of ranks are the other modules'.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import seeds

from paceline.workflows.conformance import ConformanceResult, conformance

MUTANTS = Path(__file__).parents[1] / "mutants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Techniques of one family that are measured together."""

    family: str
    operation: str
    honest: tuple[str, ...]
    wrong: dict[str, tuple[str, str]]
    """File below ``tests/mutants``, and the status and reason that it ends with."""
    ranks: tuple[int, ...] = (2,)


RUNS = {
    "collectives": Run(
        family="collectives",
        operation="all_reduce",
        honest=("native", "ring", "int8-ring"),
        wrong={
            "collectives/zeros.py": ("incorrect", r"elements differ, first at"),
            "collectives/skipped_rank.py": ("incorrect", r"elements differ, first at"),
            "collectives/imports_socket.py": ("refused", r"line \d+: imports socket"),
        },
    ),
    "kernels": Run(
        family="kernels",
        operation="gemm",
        honest=("torch-eager", "split-k"),
        wrong={
            "kernels/short_reduction.py": ("incorrect", r"elements of c are outside the bound, first at"),
            "kernels/unwritten_output.py": ("incorrect", r"c holds NaN or infinity"),
        },
        ranks=(),
    ),
    "training": Run(
        family="training",
        operation="data_parallel",
        honest=("ddp-ring", "zero-2", "local-sgd"),
        wrong={
            "training/halves_gradients.py": ("incorrect", r"of the way beside one process"),
            "training/forgets_its_state.py": ("incorrect", r"a run that was saved and taken up again has"),
        },
    ),
    "serving": Run(
        family="serving",
        operation="decode",
        honest=("autoregressive", "speculative"),
        wrong={"speculation/accepts_all.py": ("incorrect", r"and the target says")},
        ranks=(),
    ),
    "serving in virtual time": Run(
        family="serving",
        operation="simulate",
        honest=("unified", "pd-disaggregated"),
        wrong={"deployments/routes_nowhere.py": ("refused", r"route names memory \d; there are \d")},
        ranks=(),
    ),
    "programs": Run(family="programs", operation="execute", honest=("lifl",), wrong={}, ranks=()),
    "reasoning": Run(
        family="reasoning",
        operation="solve",
        honest=("self-consistency", "esc"),
        wrong={
            "reasoning/agrees_with_all.py": ("refused", r"the answer is Agreeable, and not text"),
            "reasoning/begins_twice.py": ("refused", r"sample 0 has been begun before"),
        },
        ranks=(),
    ),
}

pytestmark = [pytest.mark.gate, pytest.mark.timeout(180)]
"""A run starts process groups, and proves what it measures."""


@pytest.mark.parametrize("name", RUNS)
def test_honest_techniques_pass_and_known_wrong_ones_are_refused_beside_them(
    name: str, tmp_path: Path
) -> None:
    run = RUNS[name]
    results = conformance(
        [*run.honest, *(MUTANTS / file for file in run.wrong)],
        family=run.family,
        operations=(run.operation,),
        ranks=run.ranks,
        brief=True,
        folder=tmp_path,
        seed=seeds.current(),
    )
    for technique in run.honest:
        found = of(results, technique)
        assert [(r.problem, r.reason) for r in found if r.status != "ok"] == []
        assert all(r.measured for r in found)
    for file, (status, reason) in run.wrong.items():
        for result in of(results, Path(file).stem.replace("_", "-")):
            assert result.status == status, result.reason
            assert re.search(reason, result.reason or ""), result.reason


def of(results: list[ConformanceResult], technique: str) -> list[ConformanceResult]:
    """Return a technique's results; there are some."""
    found = [r for r in results if r.technique == technique]
    assert found, f"{technique} was not measured"
    return found
