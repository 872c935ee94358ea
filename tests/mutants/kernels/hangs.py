"""Never returns."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="hangs",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="never returns",
)
class Hangs:
    """Never returns."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        while True:
            pass
