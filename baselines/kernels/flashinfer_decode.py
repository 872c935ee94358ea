"""Decode attention by the library FlashInfer (github.com/flashinfer-ai/flashinfer), as serving engines call it.

Ye et al., "FlashInfer: Efficient and Customizable Attention Engine for LLM Inference Serving", arXiv 2501.01005, 2025.

Algorithm: ``BatchDecodeWithPagedKVCacheWrapper``: a plan deals out the pages of all caches before the calls, as an
engine plans once for all layers of a step; ``run`` attends and writes into the given output. Pages are of one token, so
that caches which lie one behind another are read where they are.

Cost: the library's; the plan is made when the technique is made, and not timed.
Settings: tensor cores from four query heads a key head on, below which they would multiply padding. The workspace is
the 128 MiB that the library's documentation recommends.
Limits: 16 bits. Its RMSNorm works in place on both inputs, which an operation must not change, so it does no
``add_rmsnorm``. Not run: needs cuda.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.context_lengths import context_lengths
from paceline.families.kernels.api.problem import Problem

WORKSPACE_BYTES = 128 << 20
LEAST_GROUP = 4


@technique(
    name="flashinfer",
    family="kernels",
    implements=("attention_decode",),
    summary="decode attention by the library FlashInfer",
    requires={"devices": ("cuda",), "dtypes": ("float16", "bfloat16"), "packages": ("flashinfer>=0.2.5",)},
    properties={"compiles": "accelerator"},
)
class FlashInferDecode:
    """B batch, S cached tokens of all sequences, G key heads, H heads, D width."""

    def __init__(self, problem: Problem) -> None:
        import flashinfer  # noqa: PLC0415 - loads the library's CUDA code

        heads, groups = problem.integer("heads"), problem.integer("kv_heads")
        lengths = torch.tensor(context_lengths(problem.params), dtype=torch.int32)
        first = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        first[1:] = lengths.cumsum(0)
        pages = torch.arange(int(first[-1]), dtype=torch.int32)
        self.wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=problem.device),
            "NHD",
            use_tensor_cores=heads >= LEAST_GROUP * groups,
        )
        self.wrapper.plan(
            first.to(problem.device),
            pages.to(problem.device),
            torch.ones(len(lengths), dtype=torch.int32, device=problem.device),
            heads,
            groups,
            problem.integer("head_dim"),
            1,
            q_data_type=problem.dtype,
            kv_data_type=problem.dtype,
        )

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Attend; ``offsets`` are what was planned with."""
        self.wrapper.run(q_BHD, (k_SGD[:, None], v_SGD[:, None]), out=out_BHD)
