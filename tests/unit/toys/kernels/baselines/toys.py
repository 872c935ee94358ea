"""Signs changed by one call, and by a product."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(name="toy-negative", family="kernels", implements=("toy",), summary="torch.neg")
class Negative:
    """One call."""

    def __init__(self, problem: Problem) -> None:
        pass

    def run(self, a_N: Tensor, b_N: Tensor) -> None:
        """Write -a to ``b_N``."""
        torch.neg(a_N, out=b_N)


@technique(name="toy-product", family="kernels", implements=("toy",), summary="a product with -1")
class Product:
    """One call, too."""

    def __init__(self, problem: Problem) -> None:
        pass

    def run(self, a_N: Tensor, b_N: Tensor) -> None:
        """Write -1 · a to ``b_N``."""
        torch.mul(a_N, -1, out=b_N)
