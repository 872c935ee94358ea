"""Atoms for ranks that share matrices: each reads those of its layers, and keeps its part of them.

Lian et al., "Universal Checkpointing" (2024), section 3: a checkpoint's atoms know nothing of layouts, so that what
was trained in shares of one vector goes on where matrices, layers and sequences are dealt out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.families.training.api.hybrid.replica import HybridReplica
from paceline.families.training.api.storage import Storage

WEIGHTS = "weights"


def take_up_atoms(replica: HybridReplica, atoms: Storage, step: int) -> None:
    """Give a rank of a mesh its part of a checkpoint that lies in atoms.

    Args:
        replica: A replica that was just made.
        atoms: Where they are (``atoms.atoms_of``).
        step: Their step.

    Raises:
        ValueError: They are another model's.
    """
    index = atoms.manifest(step, 0)["index"]
    kinds = sorted({name.partition(".")[0] for name in index if "." in name} - {WEIGHTS})
    counts = [name for name in index if "." not in name]
    common = atoms.read(step, 0, only=counts)
    with torch.no_grad():
        for number, parameter in replica.own.items():
            read = atoms.read(step, 0, only=[_name(kind, number) for kind in (WEIGHTS, *kinds)])
            parameter.copy_(_part(replica, number, read[_name(WEIGHTS, number)]))
            replica.optimizer.state[parameter] = {
                **{name: value.clone() for name, value in common.items()},
                **{kind: _part(replica, number, read[_name(kind, number)]) for kind in kinds},
            }
        # The last stage's copy of the embedding, which is parameter 0 in the model's order.
        if replica.head is not None:
            first = _name(WEIGHTS, 0)
            replica.head.copy_(atoms.read(step, 0, only=[first])[first].view_as(replica.head))


def _name(kind: str, number: int) -> str:
    return f"{kind}.{number:04d}"


def _part(replica: HybridReplica, number: int, atom: Tensor) -> Tensor:
    """Return a rank's part of an atom, which is flat."""
    whole: nn.Parameter = list(replica.model.parameters())[number]
    if atom.numel() != whole.numel():
        raise ValueError(f"parameter {number} has {atom.numel()} elements there, and {whole.numel()} here")
    # The whole model still has the shapes, though the storages of what other ranks hold were freed.
    shaped = atom.view(whole.shape).to(replica.task.device)
    cut = replica.cut_of(number)
    return shaped.clone() if cut is None else cut.of(shaped)
