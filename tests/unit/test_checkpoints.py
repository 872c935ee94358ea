"""Checkpoints survive kills and torn files, and other numbers of ranks go on from them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from paceline.baselines.training.datastates_lazy import DatastatesLazy
from paceline.baselines.training.megatron_3d import Megatron3d
from paceline.baselines.training.universal_checkpoint import UniversalCheckpoint
from training_task import make_model, make_task, on_ranks

from paceline.families.training.checkpointing import atoms
from paceline.families.training.checkpointing.meshes import take_up_atoms
from paceline.families.training.checkpointing.replica import CheckpointingReplica
from paceline.families.training.checkpointing.storage import Storage
from paceline.families.training.flat import Flat
from paceline.families.training.replica import Comm, Replica, Task

SEQUENCES_SBT = torch.randint(64, (9, 8, 17), generator=torch.Generator().manual_seed(5))
CURVE_TOLERANCE = 1e-5


def in_folder(kind: type[CheckpointingReplica], folder: Path) -> type[CheckpointingReplica]:
    def make(task: Task, comm: Comm) -> CheckpointingReplica:
        storage = Storage(folder, rank=task.rank, world_size=task.world_size)
        return kind(replace(task, storage=storage), comm)

    return make  # type: ignore[return-value]  # called as the class is


def train(replica: Replica, first: int, last: int) -> list[float]:
    """Train steps on this rank's rows and return its losses."""
    losses = []
    assert isinstance(replica, CheckpointingReplica)
    for step in range(first, last):
        loss = replica.forward_backward(SEQUENCES_SBT[step, replica.comm.rank :: replica.comm.world_size])
        replica.exchange_gradients(step)
        replica.before_update()
        replica.update(step)
        replica.exchange_parameters(step)
        losses.append(float(loss))
    return losses


def curve(found: list[tuple[object, list[float]]]) -> list[float]:
    return [sum(step) / len(found) for step in zip(*(losses for _, losses in found), strict=True)]


def test_killed_at_any_of_twenty_moments_training_leaves_what_it_said_bit_by_bit(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    script = Path(__file__).with_name("killed_training.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(seed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    endings = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(endings) == 20
    for ending in endings:
        assert ending["same"], (seed, ending)
        assert ending["said"] <= ending["found"] <= ending["steps"], (seed, ending)
    assert any(ending["found"] > 1 for ending in endings), endings


def train_in_mesh(replica: Replica, first: int, last: int) -> list[float]:
    """Train steps on whole batches and return the losses that this rank sees."""
    losses = []
    for step in range(first, last):
        loss = replica.forward_backward(SEQUENCES_SBT[step])
        replica.exchange_gradients(step)
        replica.update(step)
        replica.exchange_parameters(step)
        losses += [] if loss is None else [float(loss)]
    return losses


@pytest.mark.parametrize(("ranks", "tensor", "pipeline"), [(2, 2, 1), (4, 2, 2)])
def test_shares_of_four_ranks_go_on_where_matrices_and_layers_are_shared(
    ranks: int, tensor: int, pipeline: int, tmp_path: Path
) -> None:
    whole = curve(on_ranks(in_folder(UniversalCheckpoint, tmp_path / "whole"), 4, lambda r: train(r, 0, 9)))

    def save(replica: Replica) -> list[float]:
        losses = train(replica, 0, 4)
        assert isinstance(replica, UniversalCheckpoint)
        replica.save(4)
        return losses

    first = curve(on_ranks(in_folder(UniversalCheckpoint, tmp_path / "shares"), 4, save))
    bounds = Flat(make_task().model).bounds
    stored = atoms.convert(Storage(tmp_path / "shares", rank=0, world_size=4), 4, bounds)

    def other(task: Task, comm: Comm) -> Replica:
        model = make_model(seed=2)  # what atoms do not bring is missed
        task = replace(task, model=model, tokens=8 * task.context, microbatches=2)
        return Megatron3d(task, comm, tensor=tensor, pipeline=pipeline)

    def go_on(replica: Replica) -> list[float]:
        assert isinstance(replica, Megatron3d)
        take_up_atoms(replica, stored, 4)
        return train_in_mesh(replica, 4, 9)

    seen = [pair for pair in on_ranks(other, ranks, go_on) if pair[1]]
    found = first + curve(seen)
    assert max(abs(a - b) for a, b in zip(whole, found, strict=True)) <= CURVE_TOLERANCE
    assert len(seen) == ranks // pipeline


def test_four_two_and_one_ranks_go_on_along_the_uninterrupted_curve(tmp_path: Path) -> None:
    make = in_folder(UniversalCheckpoint, tmp_path)
    whole = curve(on_ranks(in_folder(UniversalCheckpoint, tmp_path / "whole"), 4, lambda r: train(r, 0, 9)))

    def leg(first: int) -> object:
        def run(replica: Replica) -> list[float]:
            assert isinstance(replica, UniversalCheckpoint)
            if first:
                assert replica.storage.newest() == first
                replica.restore(first)
            losses = train(replica, first, first + 3)
            replica.save(first + 3)
            return losses

        return run

    parts = [curve(on_ranks(make, ranks, leg(first))) for ranks, first in ((4, 0), (2, 3), (1, 6))]  # type: ignore[arg-type]
    apart = [abs(a - b) for a, b in zip(whole, chain(*parts), strict=True)]
    assert max(apart) <= CURVE_TOLERANCE
    assert len(list((tmp_path / "atoms-00000003").rglob("exp_avg.*"))) == len(
        list(make_task().model.parameters())
    )


@pytest.mark.parametrize("harm", ["flip", "cut", "lose", "rename"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(harm: str, tmp_path: Path) -> None:
    storage = Storage(tmp_path, rank=0, world_size=1)
    for step in (1, 2):
        storage.write(step, {"weights": torch.arange(100.0) * step})
    assert storage.newest() == 2
    path = storage.part(2, 0) / "tensors.bin"
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[7] ^= 1
        path.write_bytes(data)
    elif harm == "cut":
        path.write_bytes(data[:-1])
    elif harm == "lose":
        path.unlink()
    else:
        path.parent.parent.rename(tmp_path / "step-00000003")
    assert storage.newest() == 1
    assert torch.equal(storage.read(1)["weights"], torch.arange(100.0))


def test_a_checkpoint_is_complete_when_all_ranks_have_written(tmp_path: Path) -> None:
    first, second = (Storage(tmp_path, rank=rank, world_size=2) for rank in (0, 1))
    first.write(1, {"weights": torch.ones(3)})
    assert first.newest() is None
    second.write(1, {"weights": torch.ones(3)})
    assert first.newest() == 1


def test_the_update_waits_for_the_copy_and_the_loop_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    storage = Storage(tmp_path, rank=0, world_size=1, delay_s=0.05)
    (found,) = on_ranks(
        lambda task, comm: DatastatesLazy(replace(task, storage=storage), comm), 1, lambda r: train(r, 0, 1)
    )
    replica = found[0]
    kept = {name: tensor.clone() for name, tensor in replica.live_state().items()}
    replica.save(1)
    assert replica.completed() is None
    train(replica, 1, 2)
    replica.drain()
    assert replica.completed() == 1
    assert all(torch.equal(kept[name], tensor) for name, tensor in storage.read(1).items())


def test_atoms_refuse_ranks_that_saved_different_numbers(tmp_path: Path) -> None:
    for rank in (0, 1):
        state = {"step": torch.tensor(float(rank)), "weights": torch.ones(2)}
        Storage(tmp_path, rank=rank, world_size=2).write(1, state)
    with pytest.raises(ValueError, match="different values of 'step'"):
        atoms.convert(Storage(tmp_path, rank=0, world_size=2), 1, [(0, 4)])
