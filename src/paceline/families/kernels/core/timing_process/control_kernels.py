"""Control kernels: in processes like everybody's they show what this machine does to an honest kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paceline.families.kernels.api.eager import Eager
from paceline.families.kernels.api.problem import Problem


class Idle:
    """A kernel that does nothing: its passes cost what messages cost."""

    def __init__(self, problem: Problem, **options: Any) -> None:
        pass

    def run(self, *tensors: Tensor) -> None:
        """Leave the outputs as they are."""


class Plain:
    """PyTorch's operators: they remember nothing, so what new inputs cost them is what new inputs cost."""

    def __init__(self, problem: Problem, **options: Any) -> None:
        self.function = Eager(problem).function

    def run(self, *tensors: Tensor) -> None:
        """Call the operators of the problem's operation."""
        self.function(*tensors)


CONTROL_KERNELS = {"idle": Idle, "plain": Plain}
