"""Weights of 1 to 8 bits, packed without a gap and expanded inside the product.

Ding, Hou, Zhang, Lin, Chen, Hao, Wang and Pekhimenko, "Tilus: A Virtual Machine for Arbitrary Low-Precision GPGPU
Computation in LLM Serving", arXiv 2504.12984, 2025: types of any width, stored as bytes and re-interpreted.

Algorithm:
1. Packing, once: eight codes of b bits become b bytes: the low bits of code 0 first. Rows are padded to eight codes.
2. A call expands some rows at a time: code i of eight is ((byte pair at ⌊i·b/8⌋) >> (i·b mod 8)) & (2^b − 1).
3. (code − 2^(b−1)) · scale gives the weights of those rows; their product with X gives as many columns of Y.

Cost: b/16 of the bytes of float16 weights, and the scales.
Limits: k is padded to a multiple of eight; on accelerators, of 32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.accelerated import triton_kernel
from paceline.families.kernels.api.problem import Problem, use_triton

GROUP = 8
BLOCK_ELEMENTS = 1 << 18
"""Weights that are expanded at a time."""


def pack_codes(codes_NK: Tensor, bits: int) -> Tensor:
    """Pack codes below 2^bits into ⌈k/8⌉ · bits bytes for each row."""
    n, k = codes_NK.shape
    padded = torch.nn.functional.pad(codes_NK, (0, -k % GROUP)).view(n, -1, GROUP).to(torch.int64)
    shifts = torch.arange(GROUP, device=codes_NK.device) * bits
    # Eight codes of at most 8 bits fill an int64. Its sign does no harm, since bytes are masked after the shift.
    words = (padded << shifts).sum(dim=-1, keepdim=True)
    places = torch.arange(bits, device=codes_NK.device) * 8
    return ((words >> places) & 0xFF).to(torch.uint8).view(n, -1)


def unpack_codes(packed_NB: Tensor, bits: int, k: int) -> Tensor:
    """Return the codes (n, k) as bytes."""
    n = packed_NB.shape[0]
    groups = packed_NB.view(n, -1, bits)
    out = torch.empty(n, groups.shape[1], GROUP, dtype=torch.uint8, device=packed_NB.device)
    for index in range(GROUP):
        # A code of at most 8 bits lies in one byte or in two neighbours, and which ones
        # depends on its place of eight alone.
        byte, shift = divmod(index * bits, 8)
        value = groups[:, :, byte] >> shift
        if shift + bits > 8:
            # Bits shifted out at the top are the next code's, which the mask below would drop anyway.
            value = value | (groups[:, :, byte + 1] << (8 - shift))
        out[:, :, index] = value & ((1 << bits) - 1)
    return out.view(n, -1)[:, :k]


@technique(
    name="tilus",
    family="kernels",
    implements=("dequant_gemm",),
    summary="weights packed at any width from 1 to 8 bits, expanded inside the product",
    paper="tilus",
    properties={"compiles": "accelerator"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the abstract's method by the ledger; the paper itself was not read",
            "code": "github.com/NVIDIA/tilus, not read for this card",
        },
        "deviations": (
            "Arithmetic on bytes stands for the re-interpretation of registers.",
            (
                "Blocks of rows stand for thread blocks on CPUs; on accelerators Triton kernels expand words that "
                "are laid out for them."
            ),
            "There is no virtual machine: the expansion is written for these products alone.",
        ),
        "constants": {
            "backend": {"here": "auto", "authors": "none"},
            "GROUP": {"here": 8, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_kernel_techniques.py::test_packed_codes_come_back_and_take_no_byte_more",
            "tests/unit/test_kernel_techniques.py::test_codes_in_lanes_come_back_and_take_no_bit_more",
            "tests/conformance/test_kernels_conformance.py::test_a_kernel_conforms",
        ),
    },
)
class Tilus:
    """Y (M, N) = X (M, K) · Wᵀ; B packed bytes of a row, J groups of K that share a scale."""

    def __init__(self, problem: Problem, *, backend: str = "auto") -> None:
        self.triton = triton_kernel("triton_lowbit", "lowbit_gemm") if use_triton(problem, backend) else None
        self.pack_lanes = triton_kernel("triton_lowbit", "pack_lanes") if self.triton else None
        self.bits, self.k = problem.integer("bits"), problem.integer("k")
        self.rows = max(BLOCK_ELEMENTS // self.k, 1)

    def pack(self, codes_NK: Tensor, scales_NJ: Tensor) -> tuple[Tensor, Tensor]:
        """Pack the codes; scales stay as they are."""
        if self.pack_lanes is not None:
            return self.pack_lanes(codes_NK, self.bits, self.k // scales_NJ.shape[1]), scales_NJ
        return pack_codes(codes_NK, self.bits), scales_NJ

    def run(self, x_MK: Tensor, packed_NB: Tensor, scales_NJ: Tensor, y_MN: Tensor) -> None:
        """Multiply, some columns of the result at a time."""
        if self.triton is not None:
            self.triton(x_MK, packed_NB, scales_NJ, y_MN, bits=self.bits)
            return
        zero = 2 ** (self.bits - 1)
        for begin in range(0, packed_NB.shape[0], self.rows):
            rows = slice(begin, begin + self.rows)
            # Few rows at a time, so that expanded weights stay in the cache and never go to memory.
            codes_RK = unpack_codes(packed_NB[rows], self.bits, self.k)
            scales_RJ = scales_NJ[rows]
            centred_RK = codes_RK.to(x_MK.dtype).sub_(zero)
            # One rounding in the dtype of X, as when the weights are expanded ahead of time.
            weight_RK = (
                centred_RK.view(*scales_RJ.shape, -1).mul_(scales_RJ[:, :, None]).view(len(codes_RK), -1)
            )
            y_MN[:, rows] = x_MK @ weight_RK.T
