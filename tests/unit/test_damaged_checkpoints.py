"""What is wrong with a checkpoint is named with its file, and nothing that may be sound is dropped for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline.baselines.training.universal_checkpoint import UniversalCheckpoint
from training_task import make_comm, make_task

from paceline.families.training.api import storage as storage_module
from paceline.families.training.api.soundness import Flaw, Found
from paceline.families.training.api.storage import Storage
from paceline.families.training.ops.checkpoint import saving
from paceline.worker.communication.group_control import control_over
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.ranks.session import CaseError

RANKS = 2
STEPS = (1, 2, 3)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped": (
        lambda p: flip(p / "tensors.bin", 7),
        "tensors.bin has another digest than its manifest says",
    ),
    "short": (lambda p: os.truncate(p / "tensors.bin", 399), "tensors.bin has 399 bytes of 400"),
    "missing": (lambda p: (p / "tensors.bin").unlink(), "tensors.bin is missing"),
    "no-manifest": (lambda p: (p / "manifest.json").unlink(), "manifest.json is missing"),
    "torn-manifest": (
        lambda p: os.truncate(p / "manifest.json", 20),
        "manifest.json is not what was written",
    ),
    # the last digit of the offset, after which the manifest still is one
    "other-manifest": (
        lambda p: (p / "manifest.json").write_bytes(
            (p / "manifest.json").read_bytes().replace(b'"offset": 0', b'"offset": 4')
        ),
        "manifest.json is not what was written",
    ),
}


@pytest.fixture
def storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Storage]:
    """Two ranks that have written three checkpoints, and keep them all."""
    monkeypatch.setattr(storage_module, "KEPT", len(STEPS))
    found = [Storage(tmp_path / "kept", rank=rank, world_size=RANKS) for rank in range(RANKS)]
    for storage in found:
        for step in STEPS:
            storage.write(step, {"weights": torch.arange(100.0) * step})
    return found


def refuse(monkeypatch: pytest.MonkeyPatch, refused: Path, number: int) -> None:
    """Let a file or folder not be read."""
    real_open, real_iterdir = Path.open, Path.iterdir

    def fail(path: Path) -> None:
        if path == refused:
            raise OSError(number, os.strerror(number))

    def open_(self: Path, *args: Any, **keywords: Any) -> Any:
        fail(self)
        return real_open(self, *args, **keywords)

    def iterdir(self: Path) -> Any:
        fail(self)
        return real_iterdir(self)

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(Path, "iterdir", iterdir)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("harm", sorted(HARMS))
@pytest.mark.parametrize("rank", range(RANKS))
def test_damage_is_named_with_its_file_and_set_aside(harm: str, rank: int, storages: list[Storage]) -> None:
    deed, text = HARMS[harm]
    deed(storages[0].part(3, rank))
    before = contents(storages[0].folder / "step-00000003")
    found = storages[0].look()
    assert found == Found(
        step=2, flaws=(Flaw(step=3, kind="damaged", text=f"step-00000003/rank-{rank}/{text}"),)
    )
    assert (found.harmed, found.torn, found.status) == ((3,), (), "incorrect")
    storages[0].set_aside(found.harmed)
    for storage in storages:
        storage.forget(found.torn)
        storage.write(3, {"weights": torch.zeros(100)})
    assert contents(storages[0].folder / "damaged-00000003-1") == before
    assert storages[0].look() == Found(step=3)


@pytest.mark.parametrize("name", ["tensors.bin", "manifest.json"])
def test_what_could_not_be_read_once_is_kept_whole(
    name: str, storages: list[Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(storages[0].folder / "step-00000003")
    with monkeypatch.context() as patch:
        refuse(patch, storages[0].part(3, 1) / name, errno.EACCES)
        found = storages[0].look()
        (flaw,) = found.flaws
        assert flaw.text == f"step-00000003/rank-1/{name} cannot be read: Permission denied"
        assert (found.step, found.harmed, found.status) == (2, (3,), "infrastructure")
        storages[0].set_aside(found.harmed)
        for storage in storages:
            storage.forget(found.torn)
    aside = storages[0].folder / "damaged-00000003-1"
    assert contents(aside) == before
    aside.rename(storages[0].folder / "step-00000003")
    assert storages[0].look() == Found(step=3)


def test_a_folder_that_cannot_be_read_is_not_empty(
    storages: list[Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, storages[0].folder, errno.EIO)
    found = storages[0].look()
    (flaw,) = found.flaws
    assert (found.step, flaw.kind, found.torn, found.harmed) == (None, "unreadable", (), ())
    assert "cannot be read: Input/output error" in flaw.text


def test_a_part_that_a_kill_found_being_dropped_is_torn_and_not_damaged(storages: list[Storage]) -> None:
    """The file system can take away one file of a part before another."""
    part = storages[0].part(3, 1)
    part.rename(part.with_name("dropping-1"))
    (part.with_name("dropping-1") / "tensors.bin").unlink()
    found = storages[0].look()
    assert found == Found(
        step=2, flaws=(Flaw(step=3, kind="torn", text="step-00000003/rank-1 is not there"),)
    )
    for storage in storages:
        storage.forget(found.torn)
    assert not (storages[0].folder / "step-00000003").exists()


def test_all_that_is_wrong_is_told_and_the_first_four_in_the_reason(storages: list[Storage]) -> None:
    for step in STEPS:
        for rank in range(RANKS):
            flip(storages[0].part(step, rank) / "tensors.bin", 0)
    found = storages[0].look()
    assert (found.step, found.harmed) == (None, (3, 2, 1))
    assert found.told().endswith("; 2 more")
    assert len((found.detail() or "").splitlines()) == RANKS * len(STEPS)
    assert Found.parse(found.dump()) == found


@pytest.fixture
def recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Any, Found, float]]:
    """What the family does with what a run of one rank has left: a checkpoint of step 1 and one of step 2."""

    def make(*_: Any, **__: Any) -> Any:
        storage = Storage(tmp_path, rank=0, world_size=1)
        return SimpleNamespace(
            replica=UniversalCheckpoint(replace(make_task(), storage=storage), make_comm())
        )

    replica = make().replica
    for step in (1, 2):
        replica.values[0].fill_(float(step))
        replica.save(step)
    monkeypatch.setattr(saving, "make_sandbox", make)
    monkeypatch.setattr(saving, "watch", lambda sandbox: nullcontext())
    setting: Any = SimpleNamespace(restoring=lambda folder: None)
    session: Any = SimpleNamespace(
        rank=0, control=control_over(ThreadTransport(ThreadHub(1), 0)), on_all_ranks=lambda make: make()
    )
    nothing: Any = None
    return lambda: saving.restored(session, nothing, nothing, setting, tmp_path)


def test_training_goes_on_from_the_checkpoint_before_and_says_why(
    recover: Callable[[], tuple[Any, Found, float]], tmp_path: Path
) -> None:
    flip(tmp_path / "step-00000002" / "rank-0" / "tensors.bin", 7)
    sandbox, found, _ = recover()
    assert (found.step, float(sandbox.replica.values[0][0])) == (1, 1.0)
    assert saving.told("not step 2", found) == (
        "not step 2: step-00000002/rank-0/tensors.bin has another digest than its manifest says"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged-00000002-1", "step-00000001"]


@pytest.mark.parametrize("kind", ["damaged", "unreadable"])
def test_a_run_without_any_checkpoint_that_can_be_taken_up_ends_so_and_keeps_all(
    kind: str, recover: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "damaged":
        for step in (1, 2):
            os.truncate(tmp_path / f"step-0000000{step}" / "rank-0" / "tensors.bin", 8)
    else:
        refuse(monkeypatch, tmp_path, errno.EIO)
    with pytest.raises(
        CaseError, match=r"no checkpoint on disk can be taken up: .* (8 bytes of|cannot be read)"
    ) as caught:
        recover()
    monkeypatch.undo()
    assert caught.value.status == {"damaged": "incorrect", "unreadable": "infrastructure"}[kind]
    assert caught.value.detail
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_a_run_that_begins_finds_nothing_wrong(tmp_path: Path) -> None:
    assert Storage(tmp_path / "not there", rank=0, world_size=1).look() == Found(step=None)
