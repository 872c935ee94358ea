"""What goes wrong while training ends in a reason, on all ranks, and the other techniques go on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from leftover import processes_of
from measured import record_of

from paceline.families.training.core.data import corpus
from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import points_of

FAULTY = '''
"""Fails in its own way on one rank."""

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, FlatReplica, Task


def cost(task: Task) -> None:
    return None

'''
ENDINGS = {
    "raises": "raise ZeroDivisionError('in the fifth step')",
    "hangs": "time.sleep(600)",
    "is-killed": "getattr(torch, 'sy' + 's').modules['signal'].raise_signal(9)",
    "goes-nan": "self.flat.values.fill_(float('nan'))",
    "loses-its-loss": "self.forward_backward = lambda sequences: torch.tensor(float('nan'))",
}
EXPECTED = {
    "raises": ("crashed", "ZeroDivisionError: in the fifth step"),
    "hangs": ("timeout", "a call in stage 'train' did not end within 8 s: rank 1"),
    "is-killed": ("crashed", "rank 1 was killed by signal 9 (SIGKILL); last operation: "),
    # weights that are averaged with NaN are NaN everywhere in the step after it
    "goes-nan": ("incorrect", "diverged: the losses of all 2 ranks are not finite in step 7"),
    "loses-its-loss": ("incorrect", "diverged: rank 1's loss is not finite in step 7"),
}


DYING = '''
"""Shipped techniques, one rank of which dies with messages under way."""

import torch

from paceline import technique
from paceline.baselines.training.co2 import CO2
from paceline.baselines.training.edit import Edit
from paceline.baselines.training.noloco import NoLoCo
from paceline.baselines.training.streaming_diloco import StreamingDiLoCo
from paceline.families.training.api.replica import Comm, Task


def dying(task: Task, comm: Comm) -> Comm:
    """Let rank 1 die when it has begun to send for the second time; proofs end before anything is sent."""
    begin, sent = comm.start, []

    def start(**messages):
        transfer = begin(**messages)
        sent.extend(messages.get("sends", ())[:1])
        if task.rank == 1 and len(sent) == 2:
            getattr(torch, 'sy' + 's').modules['signal'].raise_signal(9)
        return transfer

    comm.start = start
    return comm


def cost(task: Task) -> None:
    return None

'''
SHIPPED = {"co2": "CO2", "streaming-diloco": "StreamingDiLoCo", "noloco": "NoLoCo", "edit": "Edit"}
"""Techniques whose messages travel beside computation, or between two ranks alone."""


def dying_text(name: str, kind: str) -> str:
    return f'''
@technique(
    name="{name}-dies",
    family="training",
    implements=("data_parallel",),
    summary="{name} whose rank 1 dies in an exchange",
    properties={{"exact": False, "replicas": "apart"}},
)
class Dying{kind}({kind}):
    """Kill rank 1 while its messages are under way."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, dying(task, comm), sync_every=5)

'''


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


def run(
    folder: Path,
    techniques: str,
    *,
    extra: Sequence[Path] = (),
    launches: int = 1,
    ranks: int = 2,
    matrix: str = "",
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
    **changes: Any,
) -> list[Measurement]:
    """Measure techniques beside ddp-ring at a small point, of which some parameters are told apart."""
    (point,) = points_of("training", "data_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | {"proof": "brief"} | changes).items())
    path = folder / "faults.yaml"
    path.write_text(
        "suite: training/faults\nversion: 1\nfamily: training\ndescription: Faults end in a reason.\n"
        f"workload:\n  op: data_parallel\n  ranks: {ranks}\n{lines}matrix: {{{matrix}}}\n"
        f"baseline: ddp-ring\ntechniques: [ddp-ring, {techniques}]\n"
        f"protocol: {{launches: {launches}, timeout: 8s}}\n"
    )
    suite = load_suite(path, extra=list(extra))
    return list(record_of([suite], folder, on_event=on_event).measurements)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("faults")
    file = folder / "faulty.py"
    file.write_text(FAULTY + "".join(technique_text(n, d) for n, d in ENDINGS.items()))
    found = run(folder, ", ".join(ENDINGS), extra=[file])
    assert not processes_of(folder)
    return {m.label: (m.status, m.reason or "") for m in found}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_fault_on_one_rank_ends_in_a_reason(name: str, ended: dict[str, tuple[str, str]]) -> None:
    status, reason = EXPECTED[name]
    assert ended[name][0] == status, ended[name][1]
    assert reason in ended[name][1]


def test_the_others_go_on(ended: dict[str, tuple[str, str]]) -> None:
    assert ended["ddp-ring"][0] == "ok"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("killed")
    file = folder / "dying.py"
    file.write_text(DYING + "".join(dying_text(n, k) for n, k in SHIPPED.items()))
    found = run(
        folder, ", ".join(f"{name}-dies" for name in SHIPPED), extra=[file], ranks=3, batch=12, steps=60
    )
    assert not processes_of(folder)
    return {m.label: (m.status, m.reason or "") for m in found}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_rank_that_dies_with_messages_under_way_is_named_and_nobody_waits_for_it(
    name: str, killed: dict[str, tuple[str, str]]
) -> None:
    status, reason = killed[f"{name}-dies"]
    assert status == "crashed", reason
    doing = r"(send|recv) with rank [02], \d+ B, number \d+, in progress"
    assert re.search(
        rf"rank 1 was killed by signal 9 \(SIGKILL\); last operation: {doing} \(stage: train\)", reason
    ), reason


def test_others_of_three_ranks_go_on_after_four_kills(killed: dict[str, tuple[str, str]]) -> None:
    assert killed["ddp-ring"] == ("ok", "")


def test_data_that_vanishes_while_a_plan_is_measured_is_named_on_all_ranks(tmp_path: Path) -> None:
    data, alone = tmp_path / "data", tmp_path / "alone.txt"
    data.mkdir()
    text = Path(corpus.__file__).read_bytes() * 32
    alone.write_bytes(text[:200_000])
    for number in range(20):
        (data / f"{number:02}.txt").write_bytes(text[:40_000])

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "launch_end" and data.is_dir():
            shutil.rmtree(data)
            alone.unlink()

    both = f"data: ['bytes:{data}', 'bytes:{alone}']"
    found = run(tmp_path, "local-sgd", launches=2, on_event=on_event, matrix=both)
    first = [m for m in found if m.launch == 0]
    assert {m.status for m in first} == {"ok"}, "what was there was measured"
    later = [m for m in found if m.launch == 1]
    assert {(m.label, m.status, m.reason) for m in later} == {
        (label, "invalid", f"data: there is no file or folder {path}")
        for label in ("ddp-ring", "local-sgd")
        for path in (data, alone)
    }


def test_a_rate_at_which_training_diverges_is_named_and_no_technique_is_blamed(tmp_path: Path) -> None:
    found = run(tmp_path, "local-sgd, edit", learning_rate="1.0e+30")
    assert {m.label for m in found} == {"ddp-ring", "local-sgd", "edit"}
    for m in found:
        assert m.status == "incorrect"
        assert re.search(r"diverged: .* not finite", m.reason or ""), m.reason
