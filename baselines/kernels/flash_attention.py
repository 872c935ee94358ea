"""Causal attention of a prompt by the library flash-attn (github.com/Dao-AILab/flash-attention).

Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", arXiv 2307.08691, 2023.

Algorithm: ``flash_attn_func``: tiles of queries meet tiles of keys in on-chip memory, with the online softmax, so that
the matrix of scores is never written.

Cost: the library's. It takes (batch, tokens, heads, width), which is a view of what an operation has; its result is a
new tensor, which is copied once.
Limits: 16 bits, and a width of at most 256. Caches of sequences that lie one behind another are none of the layouts
that its split decode kernel reads (padded, or pages of 256 tokens), so it does no ``attention_decode``.
Not run: needs cuda.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem, UnsupportedError

MOST_WIDTH = 256


@technique(
    name="flash-attn",
    family="kernels",
    implements=("attention_prefill",),
    summary="causal attention by the library flash-attn",
    requires={"devices": ("cuda",), "dtypes": ("float16", "bfloat16"), "packages": ("flash_attn>=2.1",)},
)
class FlashAttention:
    """B batch, T tokens, H heads, G key heads, D width."""

    def __init__(self, problem: Problem) -> None:
        if problem.integer("head_dim") > MOST_WIDTH:
            raise UnsupportedError(f"needs heads of at most {MOST_WIDTH}")
        from flash_attn import flash_attn_func  # noqa: PLC0415 - loads the library's CUDA code

        self.attend = flash_attn_func

    def run(self, q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, out_BHTD: Tensor) -> None:
        """Attend."""
        out_BTHD = self.attend(
            q_BHTD.transpose(1, 2), k_BGTD.transpose(1, 2), v_BGTD.transpose(1, 2), causal=True
        )
        out_BHTD.copy_(out_BTHD.transpose(1, 2))
