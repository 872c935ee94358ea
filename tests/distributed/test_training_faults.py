"""What goes wrong while training ends in a reason, on all ranks, and the other techniques go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import record_of

from paceline.families.training.conformance import points
from paceline.record import Measurement
from paceline.suite import load_suite

FAULTY = '''
"""Fails in its own way on one rank."""

import time

from torch import Tensor

from paceline import technique
from paceline.families.training.replica import Comm, FlatReplica, Task


def cost(task: Task) -> None:
    return None

'''
ENDINGS = {
    "raises": "raise ZeroDivisionError('in the fifth step')",
    "hangs": "time.sleep(600)",
    "goes-nan": "self.flat.values.fill_(float('nan'))",
}
EXPECTED = {
    "raises": ("crashed", "ZeroDivisionError: in the fifth step"),
    "hangs": ("timeout", "a call in stage 'train' did not end within 8 s: rank 1"),
    "goes-nan": ("incorrect", "diverged: rank 0's loss is not finite"),
}


def technique_text(name: str, deed: str) -> str:
    return f'''
@technique(
    name="{name}",
    family="training",
    implements=("data_parallel",),
    summary="{name} on one rank in the fifth step",
    properties={{"exact": False, "replicas": "apart"}},
)
class {name.title().replace("-", "")}(FlatReplica):
    """Fail on rank 1."""

    def exchange_parameters(self, step: int) -> None:
        """Wait for the others, and fail."""
        if step == 5 and self.task.steps > 20 and self.task.rank == 1:
            {deed}
        self.comm.backend.all_reduce(self.flat.values)
        self.flat.values.div_(self.comm.world_size)

'''


def run(folder: Path, data: str, techniques: str, extra: list[Path]) -> list[Measurement]:
    (point,) = points("data_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | {"proof": "brief", "data": data}).items())
    path = folder / "faults.yaml"
    path.write_text(
        "suite: training/faults\nversion: 1\nfamily: training\nwhy: Faults end in a reason.\n"
        f"workload:\n  op: data_parallel\n  ranks: 2\n{lines}"
        f"baseline: ddp-ring\ntechniques: [ddp-ring{techniques}]\nprotocol: {{launches: 1, timeout: 8s}}\n"
    )
    suite = load_suite(path, extra=extra)
    return list(record_of([suite], folder).measurements)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("faults")
    file = folder / "faulty.py"
    file.write_text(FAULTY + "".join(technique_text(n, d) for n, d in ENDINGS.items()))
    found = run(folder, "markov", "".join(f", {name}" for name in ENDINGS), [file])
    return {m.label: (m.status, m.reason or "") for m in found}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_fault_on_one_rank_ends_in_a_reason(name: str, ended: dict[str, tuple[str, str]]) -> None:
    status, reason = EXPECTED[name]
    assert ended[name][0] == status, ended[name][1]
    assert reason in ended[name][1]


def test_the_others_go_on(ended: dict[str, tuple[str, str]]) -> None:
    assert ended["ddp-ring"][0] == "ok"


def test_data_that_is_not_there_is_named_on_all_ranks(tmp_path: Path) -> None:
    (found,) = run(tmp_path, f"'bytes:{tmp_path / 'gone'}'", "", [])
    assert found.status == "invalid"
    assert "0 files, has 0 bytes to train" in (found.reason or "")
