"""Takes slopes from gradients: exact, and with all the memory that backward needs."""

from __future__ import annotations

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="runs-backward",
    family="training",
    implements=("fine_tune",),
    summary="takes slopes from gradients",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class RunsBackward(JustOneByte):
    """Right in all but what it holds."""

    @torch.enable_grad()
    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the gradient's component."""
        loss = next_symbol_loss(self.model, sequences_BS)
        tuned = [p for p in self.model.parameters() if p.requires_grad]
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, tuned)])
        return float(gradient @ z_P), float(loss.detach())


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
