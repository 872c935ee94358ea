"""Checkpoints survive kills and torn files, and other numbers of ranks go on from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch
from paceline.baselines.training.datastates_lazy import DatastatesLazy
from paceline.baselines.training.megatron_3d import Megatron3d
from paceline.baselines.training.universal_checkpoint import UniversalCheckpoint
from training_task import make_model, make_task, on_ranks

from paceline.families.training.api.checkpointing import atoms
from paceline.families.training.api.checkpointing.meshes import take_up_atoms
from paceline.families.training.api.checkpointing.replica import CheckpointingReplica
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.replica import Comm, Replica, Task
from paceline.families.training.api.storage import Storage

SEQUENCES_SBT = torch.randint(64, (12, 8, 17), generator=torch.Generator().manual_seed(5))
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


@pytest.mark.timeout(180)  # eleven processes that import torch, and write to the disk step by step
@pytest.mark.full
def test_killed_before_any_of_ten_operations_on_the_disk_training_leaves_what_it_said_bit_by_bit(
    tmp_path: Path,
) -> None:
    leaves_what_it_said("operations", 10, tmp_path)


@pytest.mark.full
def test_killed_at_any_of_twenty_moments_training_leaves_what_it_said_bit_by_bit(tmp_path: Path) -> None:
    leaves_what_it_said("moments", 20, tmp_path)


def leaves_what_it_said(how: str, number: int, tmp_path: Path) -> None:
    """Let so many children train and be killed, and look at what each left."""
    script = Path(__file__).with_name("killed_training.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path), how, str(number)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    endings = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(endings) == number
    for ending in endings:
        assert ending["same"], ending
        (found,) = ending["found"]
        assert ending["said"] <= found <= ending["steps"], ending
    for what in ("technique", "ranks"):
        for one in {ending[what] for ending in endings}:
            assert any(ending["found"][0] > 1 for ending in endings if ending[what] == one), one
    assert any(ending["torn"] for ending in endings), "no kill has hit a rank that was writing"


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


def other(tensor: int, pipeline: int) -> Callable[[Task, Comm], Replica]:
    """Return ranks that share matrices and layers, with other weights: what atoms do not bring is missed."""

    def make(task: Task, comm: Comm) -> Replica:
        task = replace(task, model=make_model(seed=2), tokens=8 * task.context, microbatches=2)
        return Megatron3d(task, comm, tensor=tensor, pipeline=pipeline)

    return make


def in_mesh(stored: Storage, first: int, last: int) -> Callable[[Replica], list[float]]:
    """Return what takes up atoms and trains steps from them."""

    def go_on(replica: Replica) -> list[float]:
        assert isinstance(replica, Megatron3d)
        take_up_atoms(replica, stored, first)
        return train_in_mesh(replica, first, last)

    return go_on


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

    mesh = on_ranks(other(tensor, pipeline), ranks, in_mesh(stored, 4, 9))
    seen = [pair for pair in mesh if pair[1]]
    found = first + curve(seen)
    assert max(abs(a - b) for a, b in zip(whole, found, strict=True)) <= CURVE_TOLERANCE
    assert len(seen) == ranks // pipeline


def test_four_two_one_and_two_ranks_that_share_matrices_go_on_along_the_uninterrupted_curve(
    tmp_path: Path,
) -> None:
    make = in_folder(UniversalCheckpoint, tmp_path)
    whole = curve(on_ranks(in_folder(UniversalCheckpoint, tmp_path / "whole"), 4, lambda r: train(r, 0, 12)))

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
    stored = atoms.convert(Storage(tmp_path, rank=0, world_size=1), 9, Flat(make_task().model).bounds)
    parts.append(curve([pair for pair in on_ranks(other(2, 1), 2, in_mesh(stored, 9, 12)) if pair[1]]))
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


def write(folder: Path, step: int, ranks: int, world_size: int, *which: int) -> list[Storage]:
    """Write the parts of some ranks of so many; return the storages of ``ranks`` ranks."""
    for rank in which:
        Storage(folder, rank=rank, world_size=world_size).write(
            step, {"weights": torch.full((3,), float(world_size))}
        )
    return [Storage(folder, rank=rank, world_size=ranks) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("before", "left", "now", "written"),
    [
        (2, [1], 4, [0, 2, 3]),
        (4, [2, 3], 2, [0]),
        (4, [1, 2, 3], 2, [0]),
        (4, [0, 2], 2, [1]),
        (3, [0], 1, []),
    ],
    ids=["more", "fewer", "fewer-of-whom-one-is-left", "fewer-crossed", "one"],
)
def test_parts_that_other_numbers_of_ranks_wrote_are_no_checkpoint_together(
    before: int, left: list[int], now: int, written: list[int], tmp_path: Path
) -> None:
    """A run dies in the middle of step 6; as many as ``now`` go on from step 5 and die there too."""
    write(tmp_path, 5, before, before, *range(before))
    write(tmp_path, 6, before, before, *left)
    found = write(tmp_path, 6, now, now, *written)
    assert {storage.newest() for storage in found} == {5}
    assert found[0].saved_by(5) == before
    with pytest.raises(ValueError, match=r"step 6 in .* is not complete"):
        found[0].saved_by(6)
    found = write(tmp_path, 6, now, now, *range(now))
    assert {storage.newest() for storage in found} == {6}
    assert found[0].saved_by(6) == now
    assert all(float(storage.read(6)["weights"][0]) == now for storage in found)


def test_who_goes_on_drops_what_a_life_before_it_had_begun(tmp_path: Path) -> None:
    """The part that rank 1 wrote of step 6 in one life and rank 0's in the next are of two states."""
    write(tmp_path, 5, 4, 4, *range(4))
    write(tmp_path, 6, 4, 4, 1, 3)
    Storage(tmp_path, rank=2, world_size=4).writing(7)
    found = write(tmp_path, 5, 2, 4)
    for storage, seen in [(storage, storage.look()) for storage in found]:
        assert (seen.step, seen.torn, seen.harmed) == (5, (7, 6), ())
        storage.forget(seen.torn)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-00000005"]
    assert {storage.newest() for storage in found} == {5}
    for step in (6, 7, 8):
        write(tmp_path, step, 2, 2, 0, 1)
    assert not (tmp_path / "step-00000005").exists(), "parts of ranks that are no more go with the others"
    (tmp_path / "step-00000008" / "notes.txt").write_text("somebody's")
    for storage in found:
        storage.forget([8])
    assert [p.name for p in (tmp_path / "step-00000008").iterdir()] == ["notes.txt"]


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


def test_ranks_that_drop_the_same_steps_at_one_time_do_not_trip_over_each_other(tmp_path: Path) -> None:
    ranks = 4
    for step in range(1, 201):
        for rank in range(ranks):
            (tmp_path / f"step-{step:08d}" / f"rank-{rank}").mkdir(parents=True)
    storages = [Storage(tmp_path, rank=rank, world_size=ranks) for rank in range(ranks)]
    with ThreadPoolExecutor(ranks) as together:
        list(together.map(lambda storage: storage.forget(range(1, 201)), storages))
    assert list(tmp_path.iterdir()) == []
