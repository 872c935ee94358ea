"""What lies in a folder of checkpoints: which one can be taken up, and what is wrong with those after it.

A *torn* checkpoint is one that a crash has left without the parts of some ranks. Parts get their names when they are
whole, so none was lost, and nobody can ever use the others. A *damaged* one was read, and is not what was written. An
*unreadable* one could not be read, here and now; it may well be sound. Who goes on may drop torn ones alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

READ_BYTES = 1 << 22
MANIFEST = "manifest.json"
MOST_TOLD = 4
"""Flaws that a reason names; the detail beside it has all."""


class UnsoundError(ValueError):
    """A file was read, and is not what was written; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Why a checkpoint cannot be taken up."""

    step: int
    """0 where the whole folder is meant."""
    kind: Literal["torn", "damaged", "unreadable"]
    text: str
    """A file, below the folder of checkpoints, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest checkpoint that can be taken up, and why those after it cannot."""

    step: int | None
    """None without any."""
    flaws: tuple[Flaw, ...] = ()
    """Those of the newest checkpoint first."""

    @property
    def torn(self) -> tuple[int, ...]:
        """Steps of which a crash has left some parts."""
        return tuple(dict.fromkeys(flaw.step for flaw in self.flaws if flaw.kind == "torn"))

    @property
    def harmed(self) -> tuple[int, ...]:
        """Steps whose checkpoints are damaged or could not be read: nobody may drop them."""
        return tuple(dict.fromkeys(flaw.step for flaw in self.flaws if flaw.kind != "torn" and flaw.step))

    @property
    def status(self) -> str:
        """How a run ends that needed a later checkpoint; what merely could not be read is the machine's fault."""
        kinds = {flaw.kind for flaw in self.flaws}
        return "infrastructure" if "unreadable" in kinds and "damaged" not in kinds else "incorrect"

    def told(self) -> str:
        """Say what is wrong, as a part of a sentence; nothing where nothing is."""
        texts = [flaw.text for flaw in self.flaws]
        more = [f"{len(texts) - MOST_TOLD} more"] if len(texts) > MOST_TOLD else []
        return "; ".join(texts[:MOST_TOLD] + more)

    def detail(self) -> str | None:
        """Return a line for each flaw; None without any."""
        return "\n".join(f"{flaw.kind}: {flaw.text}" for flaw in self.flaws) or None

    def dump(self) -> str:
        """Return text of which ``parse`` makes the same again."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Found:
        """Return what ``dump`` made text of."""
        data = json.loads(text)
        return cls(step=data["step"], flaws=tuple(Flaw(**flaw) for flaw in data["flaws"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What ranks have written about their parts of one checkpoint."""

    manifests: Sequence[Mapping[str, Any]] = ()
    """Of all ranks; empty where one has a flaw."""
    flaws: tuple[Flaw, ...] = ()


def step_folder(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return folder / f"step-{step:08d}"


def steps_in(folder: Path) -> list[int]:
    """Return the steps of which something lies in a folder, in order; none where there is no folder.

    Raises:
        OSError: It cannot be read, which is not the same as being empty.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    # A folder that is not there holds nothing; one that cannot be read may hold the only checkpoint.
    except FileNotFoundError:
        return []
    numbers = [name.removeprefix("step-") for name in names if name.startswith("step-")]
    return sorted(int(number) for number in numbers if number.isdecimal())


def look_into(folder: Path) -> Found:
    """Look for the newest checkpoint of which every file is what its manifest says."""
    try:
        steps = steps_in(folder)
    except OSError as error:
        text = f"{folder} cannot be read: {error.strerror or error}"
        return Found(step=None, flaws=(Flaw(step=0, kind="unreadable", text=text),))
    flaws: list[Flaw] = []
    # Newest first, and whole: sizes and digests are checked before anything is taken up.
    for step in reversed(steps):
        found = flaws_of(folder, step)
        if not found:
            return Found(step=step, flaws=tuple(flaws))
        flaws += found
    return Found(step=None, flaws=tuple(flaws))


def flaws_of(folder: Path, step: int) -> tuple[Flaw, ...]:
    """Read all files of a checkpoint and return what is wrong with it; nothing where it is sound."""
    parts = parts_of(folder, step)
    flaws = list(parts.flaws)
    for rank, manifest in enumerate(parts.manifests):
        for name, entry in manifest["files"].items():
            path = step_folder(folder, step) / f"rank-{rank}" / name
            try:
                _compare(entry_of(path), entry)
            except (OSError, ValueError) as error:
                flaws.append(_flaw(folder, step, path, error))
    return tuple(flaws)


def parts_of(folder: Path, step: int) -> Parts:
    """Read the manifests of a checkpoint, as many as rank 0's says that there are, and none of its other files."""
    manifests: list[Mapping[str, Any]] = []
    flaws: list[Flaw] = []
    # How many parts there must be, only a part can say: rank 0's manifest is asked first.
    rank, ranks = 0, 1
    while rank < ranks:
        part = step_folder(folder, step) / f"rank-{rank}"
        try:
            # Apart from the manifest: a missing part is a torn checkpoint, one without manifest a damaged one.
            part.stat()
        except FileNotFoundError:
            return Parts(flaws=(_torn(folder, step, part, "is not there"),))
        except OSError as error:
            return Parts(flaws=(*flaws, _flaw(folder, step, part, error)))
        rank += 1
        try:
            manifest = read_manifest(part, step)
        except (OSError, ValueError) as error:
            flaws.append(_flaw(folder, step, part / MANIFEST, error))
            continue
        count = manifest["world_size"]
        # Parts of two runs with different numbers of ranks: a crash between their saves, so torn and not damaged.
        if manifests and count != ranks:
            return Parts(flaws=(_torn(folder, step, part, f"is one of {count}, rank 0's of {ranks}"),))
        ranks = count
        manifests.append(manifest)
    return Parts(flaws=tuple(flaws)) if flaws else Parts(manifests=manifests)


def read_manifest(part: Path, step: int) -> dict[str, Any]:
    """Return what a rank has written about its part of a checkpoint.

    Raises:
        OSError: It cannot be read.
        UnsoundError: It is not what was written, or another step's.
    """
    # The manifest vouches for all files, so it needs a digest of its own.
    text, _, digest = (part / MANIFEST).read_bytes().partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise UnsoundError("is not what was written")
    found: dict[str, Any] = json.loads(text)
    if found["step"] != step:
        raise UnsoundError(f"is of step {found['step']}")
    return found


def manifest_text(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as it is written: a line of JSON, and that line's digest."""
    text = json.dumps(manifest).encode()
    return text + b"\n" + hashlib.sha256(text).hexdigest().encode()


def entry_of(path: Path) -> dict[str, Any]:
    """Return what a manifest says of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        # In blocks: a part is as large as a rank's state, and reading it whole would double the memory.
        while data := file.read(READ_BYTES):
            digest.update(data)
            size += len(data)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _compare(found: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    if found["bytes"] != written["bytes"]:
        raise UnsoundError(f"has {found['bytes']} bytes of {written['bytes']}")
    if found["sha256"] != written["sha256"]:
        raise UnsoundError("has another digest than its manifest says")


def _torn(folder: Path, step: int, part: Path, what: str) -> Flaw:
    return Flaw(step=step, kind="torn", text=f"{part.relative_to(folder)} {what}")


def _flaw(folder: Path, step: int, path: Path, error: OSError | ValueError) -> Flaw:
    name = path.relative_to(folder)
    # Before OSError, of which it is a kind: this file was lost; one that cannot be read may be sound.
    if isinstance(error, FileNotFoundError):
        return Flaw(step=step, kind="damaged", text=f"{name} is missing")
    if isinstance(error, OSError):
        return Flaw(step=step, kind="unreadable", text=f"{name} cannot be read: {error.strerror or error}")
    return Flaw(step=step, kind="damaged", text=f"{name} {error}")
