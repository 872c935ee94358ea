"""PyTorch's own operators, one after another: what people write first.

Algorithm: each operation by the operator that PyTorch's documentation offers for it, writing into the given output
where the operator can (``out=``), copying once where it cannot.

Cost: the library's. Intermediate results of fused operations go through memory.
Limits: grouped products and ragged decode attention loop over experts and sequences in Python.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.eager import Eager
from paceline.families.kernels.api.problem import Problem


@technique(
    name="torch-eager",
    family="kernels",
    implements=(
        "gemm",
        "scaled_gemm",
        "grouped_gemm",
        "dequant_gemm",
        "add_rmsnorm",
        "cross_entropy",
        "lm_head_loss",
        "attention_prefill",
        "attention_decode",
        "copy",
        "triad",
        "strided_copy",
    ),
    summary="PyTorch's operators, one after another",
)
class TorchEager:
    """Calls PyTorch."""

    def __init__(self, problem: Problem) -> None:
        # Looked up once: finding it by name is no part of a call.
        self.function = Eager(problem).function

    def run(self, *tensors: Tensor) -> None:
        """Call the operators of the problem's operation."""
        self.function(*tensors)
