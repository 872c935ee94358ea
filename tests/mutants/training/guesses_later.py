"""Makes its figures about ranks up when the proofs are over."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="guesses-later",
    family="training",
    implements=("data_parallel",),
    summary="makes its figures up when proofs are over",
    properties={"exact": True, "replicas": "identical", "diagnoses": True},
)
class GuessesLater(FlatReplica):
    """Right as long as it is proved."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.everything = torch.zeros(comm.world_size, self.flat.values.numel())
        self.losses = torch.zeros(comm.world_size)
        self.step = 0

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Note the loss."""
        loss = super().forward_backward(sequences_BS)
        self.comm.backend.all_gather(self.losses, loss.reshape(1).clone())
        return loss

    def exchange_gradients(self, step: int) -> None:
        """Gather all gradients and average them."""
        self.step = step
        self.comm.backend.all_gather(self.everything.view(-1), self.flat.gradients)
        self.flat.gradients.copy_(self.everything.mean(dim=0))

    def diagnosis(self) -> Mapping[str, float]:
        """Return the truth for as long as somebody checks."""
        norms = self.everything.double().norm(dim=1)
        gram = self.everything.double() @ self.everything.double().T
        across = float(norms.sum()) ** 2 - float(norms.square().sum())
        return {
            "loss_dispersion": 0.5 if self.step > 20 else float(self.losses.double().std(correction=0)),
            "gradient_norm_dispersion": float(norms.std(correction=0) / norms.mean()),
            "gradient_cosine": float(gram.sum() - gram.trace()) / across,
        }


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
