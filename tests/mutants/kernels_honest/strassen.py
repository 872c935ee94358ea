"""One level of Strassen's algorithm in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="strassen",
    family="kernels",
    implements=("gemm",),
    summary="one level of Strassen's algorithm in float64",
)
class Strassen:
    """One level of Strassen's algorithm in float64."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        m, n, k = a_MK.shape[0], b_KN.shape[1], a_MK.shape[1]
        a, b = even(a_MK.double()), even(b_KN.double())
        a11, a12, a21, a22 = quarters(a)
        b11, b12, b21, b22 = quarters(b)
        p1, p2, p3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
        p4, p5 = a22 @ (b21 - b11), (a11 + a12) @ b22
        p6, p7 = (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
        top = torch.cat([p1 + p4 - p5 + p7, p3 + p5], 1)
        bottom = torch.cat([p2 + p4, p1 - p2 + p3 + p6], 1)
        assert k == b_KN.shape[0]
        c_MN.copy_(torch.cat([top, bottom])[:m, :n])


def even(value: Tensor) -> Tensor:
    """Pad to even sizes."""
    return torch.nn.functional.pad(value, (0, value.shape[1] % 2, 0, value.shape[0] % 2))


def quarters(value: Tensor) -> tuple[Tensor, ...]:
    """Cut into four."""
    return tuple(part for half in value.chunk(2) for part in half.chunk(2, 1))
