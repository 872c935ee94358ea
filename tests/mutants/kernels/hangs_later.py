"""Does not return once it has passed its gate.

An instance of the gate sees at most six calls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="hangs-later",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="does not return once it has passed its gate",
)
class HangsLater:
    """Does not return once it has passed its gate."""

    def __init__(self, problem: Problem) -> None:
        self.calls = 0

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.calls += 1
        while self.calls > 6:
            pass
        torch.add(x_TH, residual_TH, out=s_TH)
        y_TH.copy_(torch.nn.functional.rms_norm(s_TH, weight_H.shape, weight_H, eps=1e-6))
