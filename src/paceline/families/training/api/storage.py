"""A folder of checkpoints that a crash at any moment leaves loadable, and the threads that write to it.

``step-N/rank-R`` holds one rank's files and their manifest. They are written under another name, digested while they
are written, flushed to the disk (fsync), and renamed at last, so that a rank's part is there in whole or not at all. A
checkpoint is complete when the parts of all ranks are, which needs no message between them; whoever reads looks at
sizes and digests of all files first, falls back to the checkpoint before, and says why (``soundness``). A rank drops
its part of a checkpoint when two later ones are complete, by another name first: what is being dropped is no part.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import torch
from torch import Tensor

from paceline.families.training.api.soundness import (
    MANIFEST,
    Found,
    entry_of,
    look_into,
    manifest_text,
    parts_of,
    read_manifest,
    step_folder,
    steps_in,
)

KEPT = 2
"""Complete checkpoints that stay: the last, and the one before it for when the last turns out to be torn."""
DATA = "tensors.bin"
Made = TypeVar("Made")
_sleep = time.sleep


class Storage:
    """One rank's side of a folder of checkpoints.

    Args:
        folder: Shared by the ranks; made when the first file is written.
        rank: This rank.
        world_size: Ranks that a checkpoint needs to be complete.
        outside: Lets the harness open files while a technique is watched.
        delay_s: Background work begins this much later: in proofs, so that who does not wait for it is found out.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        world_size: int,
        outside: Callable[[], AbstractContextManager[None]] = nullcontext,
        delay_s: float = 0.0,
    ) -> None:
        self.folder = folder
        self.rank, self.world_size = rank, world_size
        self._outside, self._delay_s = outside, delay_s
        with outside():
            # One worker each: jobs of a kind keep their order, and a copy never waits behind a slow write.
            self._lanes = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
            # By ident: these threads touch files without the fences, which guard the technique's thread.
            self._threads = {lane.submit(threading.get_ident).result() for lane in self._lanes}

    # Background work

    def copy_later(self, job: Callable[[], Made]) -> Future[Made]:
        """Run a job on the thread for copies, after those before it."""
        return self._later(0, job)

    def flush_later(self, job: Callable[[], Made]) -> Future[Made]:
        """Run a job on the thread for files, after those before it."""
        return self._later(1, job)

    def _later(self, lane: int, job: Callable[[], Made]) -> Future[Made]:
        def run() -> Made:
            _sleep(self._delay_s)
            return job()

        with self._files():
            return self._lanes[lane].submit(run)

    def beside(self, name: Path) -> Storage:
        """Return a folder in this one that one rank alone writes."""
        return Storage(self.folder / name, rank=0, world_size=1, outside=self._outside)

    def close(self) -> None:
        """End the threads when their work is done."""
        for lane in self._lanes:
            lane.shutdown()

    # Writing

    def writing(self, step: int) -> Path:
        """Return the empty folder for this rank's files of a checkpoint that is not complete."""
        with self._files():
            path = self._step(step) / f"writing-{self.rank}"
            # What a crash has left under this name is nobody's part: it was never renamed.
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        return path

    def write(self, step: int, tensors: Mapping[str, Tensor], *, apart: bool = False) -> None:
        """Write tensors of the host one after another into one file, or each into its own, and commit."""
        index: dict[str, Any] = {}
        files: dict[str, Any] = {}
        folder = self.writing(step)
        groups = [{name: tensor} for name, tensor in tensors.items()] if apart else [tensors]
        for group in groups:
            path = next(iter(group)) if apart else DATA
            with self._files(), _Digested(folder / path) as file:
                for name, tensor in group.items():
                    data = tensor.detach().contiguous()
                    shape, dtype = list(data.shape), str(data.dtype).removeprefix("torch.")
                    index[name] = {"file": path, "offset": file.size, "shape": shape, "dtype": dtype}
                    file.write(data.reshape(-1).view(torch.uint8).numpy().data)
            files[path] = file.entry()
        self._commit(step, files, index)

    def write_object(self, step: int, state: Mapping[str, Any]) -> None:
        """Write a state with ``torch.save``, and commit."""
        path = self.writing(step) / DATA
        with self._files(), _Digested(path) as file:
            torch.save(dict(state), cast("IO[bytes]", file))
        self._commit(step, {DATA: file.entry()}, {})

    def commit(self, step: int) -> None:
        """Make what a library has written into ``writing`` this rank's part of a checkpoint."""
        with self._files():
            path = self._step(step) / f"writing-{self.rank}"
            files = {str(p.relative_to(path)): entry_of(p) for p in sorted(path.rglob("*")) if p.is_file()}
            # The library may not have synced all that it wrote; an fsync of clean pages is cheap.
            for name in files:
                _flush(path / name)
        self._commit(step, files, {})

    def _commit(self, step: int, files: Mapping[str, Any], index: Mapping[str, Any]) -> None:
        with self._files():
            path = self._step(step) / f"writing-{self.rank}"
            manifest = {"step": step, "world_size": self.world_size, "files": files, "index": index}
            # Last file of the folder: it holds the digests of all others.
            with _Digested(path / MANIFEST) as file:
                file.write(manifest_text(manifest))
            # The folder's own entries are data, too: without this fsync the names of its files could be lost.
            _flush(path)
            final = self._step(step) / f"rank-{self.rank}"
            # A run came to this step again; rename does not replace a folder that is not empty.
            if final.exists():
                _remove(final)
            # The commit point: rename is atomic, so a part is there in whole or not at all.
            path.rename(final)
            # fsync of both parents: a rename that is not on disk may be undone by a crash after training went on.
            for changed in (self._step(step), self.folder):
                _flush(changed)
            # After the commit, never before: between the two there must be a checkpoint to fall back to.
            self._drop_old()

    def _drop_old(self) -> None:
        with suppress(OSError):  # a folder that cannot be read now is tidied up with the next checkpoint
            steps = steps_in(self.folder)
            # By manifests alone: looking at all data again after every save would read as much as is written.
            complete = [step for step in steps if parts_of(self.folder, step).manifests]
            for step in steps:
                # Also incomplete ones that are older: no rank can complete them any more.
                if len(complete) >= KEPT and step < complete[-KEPT]:
                    self._drop(step)

    def set_aside(self, steps: Iterable[int]) -> None:
        """Give checkpoints that nobody may drop other names, so that training can come to their steps again.

        One rank does, and only where one before them is taken up.
        """
        with self._files():
            for step in steps:
                number = 1
                # Renamed, not removed: a damaged checkpoint is evidence, and perhaps all that is left of a run.
                while (aside := self.folder / f"damaged-{step:08d}-{number}").exists():
                    number += 1
                self._step(step).rename(aside)

    def forget(self, steps: Iterable[int]) -> None:
        """Drop what this rank, and ranks that are no more, have written of steps to which training comes again.

        All ranks do, before any of them saves again, and only for checkpoints that a crash has left torn.
        """
        with self._files():
            for step in steps:
                self._drop(step)

    def _drop(self, step: int) -> None:
        with suppress(OSError):  # the folder goes with the last rank's part, whoever that is
            for path in list(self._step(step).iterdir()):
                what, _, rank = path.name.partition("-")
                # Modulo: parts of ranks that exist no more (a run on fewer ranks goes on) are dropped by one that does.
                if what in ("rank", "writing", "dropping") and int(rank) % self.world_size == self.rank:
                    _remove(path)
            self._step(step).rmdir()

    # Reading

    def look(self) -> Found:
        """Read what is there, all files of what could be taken up; say why later checkpoints cannot."""
        with self._files():
            return look_into(self.folder)

    def newest(self) -> int | None:
        """Return the last checkpoint of which every file is what its manifest says; None without any."""
        return self.look().step

    def manifest(self, step: int, rank: int) -> dict[str, Any]:
        """Return what a rank has written about its part."""
        with self._files():
            return read_manifest(self.part(step, rank), step)

    def part(self, step: int, rank: int) -> Path:
        """Return the folder of a rank's part of a checkpoint."""
        return self._step(step) / f"rank-{rank}"

    def read(
        self, step: int, rank: int | None = None, *, only: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Return the tensors of a rank's part, its own by default; all, or some, whose files alone are read.

        Raises:
            KeyError: A name of ``only`` is not in the part.
            OSError: A file cannot be read.
            UnsoundError: The manifest is not what was written.
        """
        rank = self.rank if rank is None else rank
        index = self.manifest(step, rank)["index"]
        contents: dict[str, bytearray] = {}
        found = {}
        for name in index if only is None else only:
            entry = index[name]
            if entry["file"] not in contents:
                with self._files():
                    # bytearray: torch.frombuffer needs memory that may be written to, and tensors keep it alive.
                    contents[entry["file"]] = bytearray((self.part(step, rank) / entry["file"]).read_bytes())
            data = contents[entry["file"]]
            dtype, count = getattr(torch, entry["dtype"]), torch.Size(entry["shape"]).numel()
            flat = torch.frombuffer(data, dtype=dtype, count=count, offset=entry["offset"])
            found[name] = flat.reshape(entry["shape"])
        return found

    def read_object(self, step: int) -> dict[str, Any]:
        """Return what this rank wrote with ``write_object``."""
        with self._files():
            # weights_only: a checkpoint is data and must not be able to run code.
            found: dict[str, Any] = torch.load(self.part(step, self.rank) / DATA, weights_only=True)
            return found

    def num_bytes(self, step: int) -> int:
        """Return the bytes of a checkpoint on disk, all ranks and manifests included."""
        return sum(p.stat().st_size for p in self._step(step).rglob("*") if p.is_file())

    def saved_by(self, step: int) -> int:
        """Return the number of ranks that wrote a checkpoint.

        Raises:
            ValueError: It is not complete, or what they wrote about it is damaged or cannot be read.
        """
        with self._files():
            found = parts_of(self.folder, step)
        if not found.manifests:
            why = "; ".join(flaw.text for flaw in found.flaws)
            raise ValueError(f"the checkpoint of step {step} in '{self.folder}' is not complete: {why}")
        return len(found.manifests)

    def _step(self, step: int) -> Path:
        return step_folder(self.folder, step)

    @contextmanager
    def _files(self) -> Iterator[None]:
        """Leave the fences, unless this is a background thread, around which there are none."""
        here = threading.get_ident() in getattr(self, "_threads", ())
        with nullcontext() if here else self._outside():
            yield


class _Digested:
    """A file that is digested while it is written, and on the disk when it is closed without an error."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        self._digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Give what was written to the system."""
        self._file.flush()

    def entry(self) -> dict[str, Any]:
        """Return what the manifest says of the file."""
        return {"bytes": self.size, "sha256": self._digest.hexdigest()}

    def __enter__(self) -> _Digested:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            # Only when the write succeeded: an error must not wait for a full or broken disk once more.
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())


def _remove(path: Path) -> None:
    """Remove a rank's files, by another name first: a kill meanwhile leaves no part that has lost some of them."""
    # The name says of whom it is, so the next _drop finds what a kill has left half removed.
    gone = path.with_name(f"dropping-{path.name.partition('-')[2]}")
    if path != gone:
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _flush(path: Path) -> None:
    # fsync works on a read-only descriptor, and folders cannot be opened otherwise.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
