"""A control kernel: in a process like everybody's it shows what messages cost on this machine now."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paceline.families.kernels.api.problem import Problem


class Idle:
    """A kernel that does nothing: its passes cost what messages cost."""

    def __init__(self, problem: Problem, **options: Any) -> None:
        pass

    def run(self, *tensors: Tensor) -> None:
        """Leave the outputs as they are."""
