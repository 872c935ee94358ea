"""The Triton kernels of decode attention, low-bit products and norms compile for GPUs that are not here.

The interpreter checks results but neither types, nor the least size of a product, nor shared memory. The compiler does,
and needs no device: launches are caught, and what would be launched is compiled. Tensors are on the device ``meta``, so
that points of any size cost no memory.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
import torch
from representatives import first_of_each

from paceline.families.kernels.api import problem as api_problem
from paceline.families.kernels.api.problem import TORCH_DTYPES, Problem
from paceline.families.kernels.spec import FAMILY

triton = pytest.importorskip("triton")
compiler = pytest.importorskip("triton.compiler")

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter leaves nothing to compile"
)

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int32: "*i32", torch.int64: "*i64",
    torch.uint8: "*u8",
}  # fmt: skip
SHARED_BYTES = {80: 163 << 10, 90: 227 << 10}
"""Shared memory that one program may have, by compute capability."""
HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128}
LONG = {"batch": 1, "context": 65536, "spread": "uniform"} | HEADS
LLAMA = {"n": 14336, "k": 4096, "group": 64}


def argument_type(value: Any) -> tuple[str, bool]:
    """Return the type of an argument as Triton sees it, and whether it is a multiple of 16."""
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype], True
    if isinstance(value, float):
        return "fp32", False
    assert isinstance(value, int)
    return ("constexpr", False) if value == 1 else ("i64" if value >= 1 << 31 else "i32", value % 16 == 0)


class Compiled:
    """What launches of kernels would have compiled, for one compute capability."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.shared_bytes: list[int] = []

    def launch(self, function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        """Compile in the place of ``JITFunction.run``."""
        names = [p.name for p in function.params]
        given = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
        options = {k: v for k, v in kwargs.items() if k not in names}
        fixed = {p.name for p in function.params if p.is_constexpr}
        signature, constants, multiples = {}, {}, {}
        for place, name in enumerate(names):
            signature[name], multiple = ("constexpr", False) if name in fixed else argument_type(given[name])
            if signature[name] == "constexpr":
                constants[(place,)] = given[name]
            if multiple:
                multiples[(place,)] = [["tt.divisibility", 16]]
        source = compiler.ASTSource(fn=function, signature=signature, constexprs=constants, attrs=multiples)
        target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", self.capability, 32)
        self.shared_bytes.append(triton.compile(source, target=target, options=options).metadata.shared)


def odd(operation: str, index: int, **params: Any) -> dict[str, Any]:
    """Return one of the points at which the gate checks an operation."""
    operator = importlib.import_module(f"paceline.families.kernels.ops.{operation}.run").OPERATOR
    changes: dict[str, Any] = operator.odd_points(params)[index]
    return params | changes


CASES = [
    *(("unsplit", "Unsplit", "attention_decode", d, LONG, {}) for d in ("bfloat16", "float32")),
    *(
        (
            "flash_decoding",
            "FlashDecoding",
            "attention_decode",
            "bfloat16",
            odd("attention_decode", i),
            {"splits": 2},
        )
        for i in range(3)
    ),
    ("lean_attention", "LeanAttention", "attention_decode", "float32", odd("attention_decode", 0), {}),
    ("lean_attention", "LeanAttention", "attention_decode", "bfloat16", LONG | {"head_dim": 24}, {}),
    *(("tilus", "Tilus", "dequant_gemm", "bfloat16", LLAMA | {"m": m, "bits": 7}, {}) for m in (1, 16)),
    *(("tilus", "Tilus", "dequant_gemm", "bfloat16", odd("dequant_gemm", i, bits=3), {}) for i in range(3)),
    ("tilus", "Tilus", "dequant_gemm", "float32", odd("dequant_gemm", 2, bits=4), {}),
    (
        "fused_add_rmsnorm",
        "FusedAddRmsNorm",
        "add_rmsnorm",
        "bfloat16",
        {"tokens": 16384, "hidden": 8192},
        {},
    ),
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "float32", odd("add_rmsnorm", 0), {}),
]


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize(
    ("module", "name", "operation", "dtype", "point", "options"),
    first_of_each(CASES, lambda case: (case[0], case[3])),
    ids=["-".join(map(str, (c[0], c[3], *c[4].values()))) for c in CASES],
)
def test_a_kernel_compiles_and_fits_into_shared_memory(
    module: str,
    name: str,
    operation: str,
    dtype: str,
    point: dict[str, Any],
    options: dict[str, Any],
    capability: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = {p.name: p.default for p in FAMILY.parameters_for(operation)} | point
    spec = importlib.import_module(f"paceline.families.kernels.ops.{operation}.run").OPERATOR
    inputs, outputs = spec.tensors(params, TORCH_DTYPES[dtype])
    tensors = [torch.empty(s.shape, dtype=s.dtype, device="meta") for s in [*inputs, *outputs]]
    package = importlib.import_module(f"paceline.baselines.kernels.{module}")
    monkeypatch.setattr(package, "default_workers", lambda problem: 132, raising=False)
    # The device is not here: compiled for, and not asked for.
    monkeypatch.setattr(api_problem, "_triton_drives_an_accelerator", lambda: True)
    compiled = Compiled(capability)
    monkeypatch.setattr(
        triton.runtime.JITFunction,
        "run",
        lambda function, *a, **k: compiled.launch(function, *a, **k),  # noqa: PLW0108 - a function becomes a method
    )
    problem = Problem(
        operation=operation, dtype=TORCH_DTYPES[dtype], device=torch.device("meta"), params=params
    )
    instance = getattr(package, name)(problem, backend="triton", **options)
    if spec.num_weights:
        kept = len(inputs) - spec.num_weights
        tensors[kept : len(inputs)] = instance.pack(*tensors[kept : len(inputs)])
    instance.run(*tensors)
    assert compiled.shared_bytes
    assert max(compiled.shared_bytes) <= SHARED_BYTES[capability]
