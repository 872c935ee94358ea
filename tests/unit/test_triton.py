"""The Triton kernels in Triton's interpreter: right on small shapes without an accelerator.

The interpreter has to be chosen before Triton is imported, so the checks run in a process of their own: one for all,
since importing torch and Triton takes longer than a check.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from representatives import first_of_each

SCRIPT = """
import builtins
import sys
import numpy
import torch
import triton.runtime.interpreter as interpreter

class Anything(type):
    def __instancecheck__(cls, value):
        return isinstance(value, builtins.int)

class Int(int, metaclass=Anything):
    # Triton 3.6's interpreter converts arrays of one element, which numpy 2.4 refuses.
    def __new__(cls, value=0):
        return builtins.int(value.reshape(()) if isinstance(value, numpy.ndarray) else value)

interpreter.int = Int
import triton.language as tl

multiply = interpreter.InterpreterBuilder.create_dot

def create_dot(self, a, b, *others):
    # The interpreter keeps bfloat16 as whole numbers, and multiplies those.
    def numbers(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        wide = interpreter._convert_float(handle.data, tl.bfloat16, tl.float32, None).view(numpy.float32)
        return interpreter.TensorHandle(wide, tl.float32)
    return multiply(self, numbers(a), numbers(b), *others)

interpreter.InterpreterBuilder.create_dot = create_dot
from paceline.families.kernels.core.oracle import judge
from paceline.families.kernels.api.problem import Problem, TORCH_DTYPES
from paceline.families.kernels.spec import FAMILY
import importlib
import traceback


def check(module, name, operation, dtype, changes, options, spoilt=False):
    params = {p.name: p.default for p in FAMILY.parameters_for(operation)}
    ops = f"paceline.families.kernels.ops.{operation}"
    params |= importlib.import_module(f"{ops}.conformance").POINT | {"op": operation, "dtype": dtype} | changes
    spec, torch_dtype = importlib.import_module(f"{ops}.run").OPERATOR, TORCH_DTYPES[dtype]
    draw = spec.draw(params, torch_dtype, seed=3)
    inputs, outputs = spec.tensors(params, torch_dtype)
    results = [torch.full(s.shape, float("nan"), dtype=s.dtype) for s in outputs]
    technique = getattr(importlib.import_module(f"paceline.baselines.kernels.{module}"), name)
    problem = Problem(operation=operation, dtype=torch_dtype, device=torch.device("cpu"), params=params)
    instance = technique(problem, backend="triton", **options)
    arguments = list(draw.inputs)
    if spec.num_weights:
        kept = len(arguments) - spec.num_weights
        arguments = [*arguments[:kept], *instance.pack(*arguments[kept:])]
    instance.run(*arguments, *results)
    if spoilt:
        results[0].view(-1)[0] += 1000.0
    judged = judge(draw.expected, results, [1.0] * len(results), [s.name for s in outputs])
    assert judged.passed, judged.reason


for line in sys.stdin:
    try:
        check(*eval(line))
        said = "right"
    except BaseException:
        said = traceback.format_exc()
    print(repr(said), flush=True)
"""

SHAPE = {"m": 50, "n": 70, "k": 130}
TILES = {"tile_m": 32, "tile_n": 32, "tile_k": 32}
DECODE = {"batch": 3, "context": 150, "heads": 6, "kv_heads": 2, "head_dim": 32}
ONE_KEY = {"batch": 1, "context": 1, "heads": 2, "kv_heads": 1, "head_dim": 8}
LONG = {"batch": 2, "context": 321, "heads": 4, "kv_heads": 1, "head_dim": 24}
LOW = {"m": 5, "n": 33, "k": 96, "group": 32}
CASES = [
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "float32", {}, {}),
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "bfloat16", {}, {}),
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "float32", {"tokens": 33, "hidden": 257}, {}),
    ("unsplit", "Unsplit", "attention_decode", "float32", DECODE, {}),
    ("unsplit", "Unsplit", "attention_decode", "bfloat16", LONG, {}),
    ("unsplit", "Unsplit", "attention_decode", "float32", ONE_KEY, {}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float32", DECODE, {"splits": 3}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float32", DECODE, {"tile": 16}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "bfloat16", LONG, {"tile": 16, "splits": 70}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float16", LONG, {"tile": 64, "tuned": True}),
    ("lean_attention", "LeanAttention", "attention_decode", "float32", DECODE, {"tile": 32, "workers": 5}),
    ("lean_attention", "LeanAttention", "attention_decode", "float16", DECODE, {"tile": 32, "workers": 3}),
    ("lean_attention", "LeanAttention", "attention_decode", "bfloat16", LONG, {"tile": 16, "workers": 40}),
    ("lean_attention", "LeanAttention", "attention_decode", "float32", ONE_KEY, {"workers": 5}),
    ("split_k", "SplitK", "gemm", "float32", SHAPE, {"splits": 3} | TILES),
    ("stream_k", "StreamK", "gemm", "float32", SHAPE, {"workers": 5, "sharing_cost": 0} | TILES),
    ("stream_k", "StreamK", "gemm", "float64", SHAPE, {"workers": 5} | TILES),
    ("persistent", "Persistent", "gemm", "float32", SHAPE, {"workers": 3} | TILES),
    *(("tilus", "Tilus", "dequant_gemm", "float32", {"bits": bits}, {}) for bits in range(1, 9)),
    *(("tilus", "Tilus", "dequant_gemm", "bfloat16", LOW | {"bits": bits}, {}) for bits in range(1, 9)),
    ("tilus", "Tilus", "dequant_gemm", "bfloat16", {"m": 1, "n": 17, "k": 1024, "group": 64, "bits": 7}, {}),
    ("tilus", "Tilus", "dequant_gemm", "float32", {"m": 2, "n": 5, "k": 40, "group": 20, "bits": 3}, {}),
    ("tilus", "Tilus", "dequant_gemm", "float16", {"m": 17, "n": 40, "k": 1024, "group": 128, "bits": 6}, {}),
]  # fmt: skip


Ask = Callable[[tuple[Any, ...]], str]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Return what gives a check's answer: ``right``, or a traceback."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None

        def answer(case: tuple[Any, ...]) -> str:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{case!r}\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                return f"the interpreter's process ended: {errors.read()[-2000:]}"
            return str(ast.literal_eval(line))

        yield answer
        process.kill()
        process.communicate()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("case",),
    first_of_each(((case,) for case in CASES), lambda case: (case[0][0], case[0][3])),
    ids=["-".join(map(str, (c[0], c[3], *c[4].values(), *c[5].values()))) for c in CASES],
)
@pytest.mark.one_in(3)
def test_a_triton_kernel_is_right_in_the_interpreter(case: tuple[Any, ...], ask: Ask) -> None:
    assert ask(case) == "right"


def test_a_check_that_fails_is_told_and_the_next_one_is_made(ask: Ask) -> None:
    assert "TypeError" in ask((*CASES[0][:5], {"nothing": 1}))
    assert "1 of 680 elements of y are outside the bound" in ask((*CASES[-1], "spoilt"))
    assert ask(CASES[0]) == "right"
