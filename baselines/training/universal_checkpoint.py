"""Universal checkpoints: ranks save their shares as ever, and any other number of ranks can take them up.

Lian et al., "Universal Checkpointing: Efficient and Flexible Checkpointing for Large Scale Distributed Training"
(2024), sections 3 and 4.

Algorithm:
1. Every rank writes its share of weights and optimiser state; nothing else is done while training goes on.
2. As many ranks as wrote a checkpoint read their own shares back.
3. Otherwise rank 0 first joins the shares and cuts them into atoms: a file for every parameter and kind of state.
4. Every rank reads the atoms that its new share touches.

Cost of a checkpoint: to write 12P/n bytes (Adam), synchronously. Conversion: each byte is read and written once.
Layouts: atoms know of none. A mesh of ranks that share matrices and layers reads the atoms of its layers and keeps its
part of each (``checkpointing.meshes``).
Limits: fused matrices are one atom, which a mesh cuts in several places.
"""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.checkpointing import atoms
from paceline.families.training.api.checkpointing.replica import (
    CheckpointingReplica,
    Comm,
    Cost,
    Task,
    training_cost,
)


@technique(
    name="universal-checkpoint",
    family="training",
    implements=("checkpoint",),
    summary="shares saved as they are; converted to atoms for another number of ranks",
    paper="universal-checkpointing",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 3 and 4 by the header, not read for this card",
            "code": (
                "github.com/microsoft/DeepSpeed: deepspeed/checkpoint/ds_to_universal.py, "
                "its list of functions and options"
            ),
        },
        "deviations": (
            (
                "There is one pattern, shares of one vector; the paper has a language of patterns for padding, "
                "fused and replicated parameters."
            ),
            "One process converts; the authors' tool extracts and merges with several.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_checkpoints.py::test_four_two_one_and_two_ranks_that_share_matrices_go_on_along_the_uninterrupted_curve",
            "tests/unit/test_checkpoints.py::test_shares_of_four_ranks_go_on_where_matrices_and_layers_are_shared",
        ),
    },
)
class UniversalCheckpoint(CheckpointingReplica):
    """Save shares, convert late."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.saved: int | None = None

    def save(self, step: int) -> None:
        """Write this rank's share."""
        self.storage.write(step, {name: tensor.cpu() for name, tensor in self.live_state().items()})
        self.saved = step

    def completed(self) -> int | None:
        """Return the last step saved: ``save`` returns when it is on disk."""
        return self.saved

    def restore(self, step: int) -> None:
        """Read this rank's share, through atoms where other ranks wrote it."""
        # The usual case costs nothing extra: atoms are made only when the number of ranks has changed.
        if self.storage.saved_by(step) == self.comm.world_size:
            self.take_up(self.storage.read(step))
            return
        # A message as a barrier: the others may look for atoms only after rank 0 has renamed them into place.
        done = torch.zeros(1, device=self.task.device)
        if self.comm.rank == 0:
            atoms.convert(self.storage, step, self.flat.bounds)
            for other in self.members[1:]:
                self.comm.send(done, other)
        else:
            self.comm.receive(done, 0)
        share = self.bounds[self.comm.rank]
        # Only atoms that overlap the new share are read: ranks together read each byte about once.
        self.take_up(atoms.load(atoms.atoms_of(self.storage, step), step, self.flat.bounds, share))


def cost(task: Task) -> Cost:
    """Return what training sends."""
    return training_cost(task)
