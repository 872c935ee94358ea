"""Atoms: one file for each parameter and kind of state, from which any layout of ranks can load its part.

What ranks have saved are shares of vectors. A conversion joins them in the order of ranks, cuts the whole at the
parameters' bounds, and writes every piece; it reads and writes each byte once. Numbers without a shape, such as a count
of steps, are equal on all ranks and kept as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from paceline.families.training.api.storage import Storage


def convert(storage: Storage, step: int, bounds: Sequence[tuple[int, int]]) -> Storage:
    """Write the atoms of a checkpoint, and return where they are.

    Args:
        storage: Holds the checkpoint.
        step: Its step.
        bounds: (start, stop) of every parameter in the vector that ranks had shares of.

    Raises:
        ValueError: Ranks have saved different numbers, or shares of another model.
    """
    parts = [storage.read(step, rank) for rank in range(storage.saved_by(step))]
    atoms: dict[str, Tensor] = {}
    for name, first in parts[0].items():
        # Adam's step count: it has no elements to cut, and must be the same on all ranks.
        if not first.dim():
            if any(not torch.equal(first, part[name]) for part in parts):
                raise ValueError(f"ranks have saved different values of '{name}'")
            atoms[name] = first
            continue
        whole = torch.cat([part[name] for part in parts])
        # Only the sum of shares tells the model; another one would be cut at the wrong places.
        if len(whole) != bounds[-1][1]:
            raise ValueError(f"'{name}' has {len(whole)} elements, and the model {bounds[-1][1]}")
        atoms |= {f"{name}.{number:04d}": whole[a:b] for number, (a, b) in enumerate(bounds)}
    found = atoms_of(storage, step)
    # A file for each atom, so that a rank of another layout opens only those it needs.
    found.write(step, atoms, apart=True)
    return found


def atoms_of(storage: Storage, step: int) -> Storage:
    """Return where the atoms of a checkpoint are, or will be."""
    return storage.beside(Path(f"atoms-{step:08d}"))


def load(
    atoms: Storage, step: int, bounds: Sequence[tuple[int, int]], share: tuple[int, int]
) -> dict[str, Tensor]:
    """Return one rank's share of every vector, reading only the atoms that it touches.

    Args:
        atoms: Where they are.
        step: Their step.
        bounds: (start, stop) of every parameter in the vector.
        share: (start, stop) of this rank's part of it.
    """
    names = atoms.manifest(step, 0)["index"]
    start, stop = share
    found: dict[str, Tensor] = {}
    for name in sorted({name.partition(".")[0] for name in names}):
        if name in names:
            found[name] = atoms.read(step, 0, only=[name])[name]
            continue
        touched = [(i, a, b) for i, (a, b) in enumerate(bounds) if a < stop and b > start]
        read = atoms.read(step, 0, only=[f"{name}.{i:04d}" for i, _, _ in touched])
        pieces = [read[f"{name}.{i:04d}"][max(a, start) - a : min(b, stop) - a] for i, a, b in touched]
        found[name] = torch.cat(pieces)
    return found
