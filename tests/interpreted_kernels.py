"""Kernels in Triton's interpreter: right on small shapes without an accelerator.

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
from contextlib import contextmanager
from typing import Any

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
convert = interpreter._implicit_cvt

def converted(value):
    # The compiler makes 32 bits of an argument that is a float; the interpreter hands it on as Python's.
    if not isinstance(value, float):
        return convert(value)
    return tl.tensor(interpreter.TensorHandle(numpy.array([value], dtype=numpy.float32), tl.float32), tl.float32)

interpreter._implicit_cvt = converted
from paceline.families.kernels.core.oracle import judge
from paceline.families.kernels.api.problem import Problem, TORCH_DTYPES
from paceline.families.kernels.spec import FAMILY
import importlib
import traceback

# prelude


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
    instance = technique(problem, **options)
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

Ask = Callable[[tuple[Any, ...]], str]
"""Takes (module, class, operation, dtype, parameters, options) and gives what ``interpreted`` says."""


@contextmanager
def interpreted(prelude: str = "") -> Iterator[Ask]:
    """Yield what gives a check's answer: ``right``, or a traceback.

    Args:
        prelude: Python that runs after the interpreter is ready and before the first check.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.replace("# prelude", prelude)],
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
