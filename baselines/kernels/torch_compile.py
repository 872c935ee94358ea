"""The eager operators through ``torch.compile``: Inductor fuses what is elementwise and keeps the library's products.

Algorithm: the same functions as ``torch-eager``, traced once for the point's shapes and compiled to C++ or Triton.

Cost: compilation before the first call (excluded from timing), then fewer passes over memory for fused operations.
Limits: needs a C++ compiler on CPUs and Triton on accelerators; loops over experts and sequences are unrolled by the
tracer, and ``tolist`` breaks the graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.eager import Eager
from paceline.families.kernels.api.problem import Problem


@technique(
    name="torch-compile",
    family="kernels",
    implements=(
        "gemm",
        "dequant_gemm",
        "add_rmsnorm",
        "cross_entropy",
        "attention_prefill",
        "triad",
        "strided_copy",
    ),
    summary="the eager operators through torch.compile",
    properties={"compiles": True},
)
class TorchCompile:
    """Compiles the eager operators."""

    def __init__(self, problem: Problem) -> None:
        # ``fullgraph``: a graph break is an error, or eager operators would be timed under this name.
        self.compiled = torch.compile(Eager(problem).function, fullgraph=True, dynamic=False)

    def run(self, *tensors: Tensor) -> None:
        """Call the compiled function."""
        with torch.no_grad():
            self.compiled(*tensors)
