"""What an operation says that ``run`` is given is what a call is given: names, order, shapes, types and roles."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch

from paceline.base.families.arguments import DTYPE, WIDE, Argument
from paceline.base.families.family import load_family
from paceline.base.families.operation import Operation
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.strided import layout_of
from paceline.families.collectives.core.timed_operation import TimedOperation
from paceline.families.kernels.api.context_lengths import context_lengths
from paceline.families.kernels.core.operators import min_precise

KERNELS = {n: o for n, o in load_family("kernels").operations.items() if n not in ("custom", "tile_choice")}
SCRIPTED = ("churn", "fault_localisation")
"""Whose techniques are called in another way."""
COLLECTIVES = {n: o for n, o in load_family("collectives").operations.items() if n not in SCRIPTED}


def defaults(family: str, operation: Operation, **given: Any) -> dict[str, Any]:
    parameters = load_family(family).parameters_for(operation.name)
    return {**{p.name: p.default for p in parameters}, "op": operation.name, **given}


def length(formula: str, known: dict[str, Any]) -> int:
    """Reckon a length as it is written: a parameter's name, or a formula of some."""
    for name in sorted(known, key=len, reverse=True):
        formula = formula.replace(name, str(known[name])) if name in formula else formula
    return int(eval(formula.replace("√", "root"), {"root4": 2, "__builtins__": {}}))


def lengths(argument: Argument, known: dict[str, Any]) -> tuple[int, ...]:
    return tuple(length(formula, known) for formula in argument.shape)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_kernel_is_given_the_arguments_that_its_operation_states(name: str, dtype: torch.dtype) -> None:
    operation = KERNELS[name]
    point = importlib.import_module(f"paceline.families.kernels.ops.{name}.conformance").POINT
    params = defaults("kernels", operation, **point)
    run = importlib.import_module(f"paceline.families.kernels.ops.{name}.run")
    inputs, outputs = run.OPERATOR.tensors(params, dtype)
    known = {k: v for k, v in params.items() if isinstance(v, int)} | {"item bytes": dtype.itemsize}
    if name == "attention_decode":
        known["cached tokens"] = sum(context_lengths(params))
    types = {DTYPE: dtype, WIDE: min_precise(dtype)}
    stated = [
        (a.name, lengths(a, known), types.get(a.dtype) or getattr(torch, a.dtype), a.role)
        for a in operation.arguments
    ]
    assert stated == [
        *((t.name, t.shape, t.dtype, "in") for t in inputs),
        *((t.name, t.shape, t.dtype, "out") for t in outputs),
    ]


def timed(name: str) -> TimedOperation:
    module = importlib.import_module(f"paceline.families.collectives.ops.{name}.run")
    (found,) = (
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, TimedOperation) and kind.__module__ == module.__name__
    )
    made: TimedOperation = found()
    return made


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_is_given_the_arguments_that_its_operation_states(name: str) -> None:
    operation, ranks, item = COLLECTIVES[name], 4, 4
    params = defaults("collectives", operation, ranks=ranks)
    params["size_bytes"] = size = params.get("size_bytes") or 4096
    problem = Problem(
        operation=name,
        rank=1,
        world_size=ranks,
        dtype=torch.float32,
        device=torch.device("cpu"),
        count=size // item,
        params=params,
    )
    known = {k: v for k, v in params.items() if isinstance(v, int)} | {"item bytes": item}
    if name == "strided_exchange":
        known["extent"] = layout_of(problem).extent
    made = timed(name)
    assert {a.dtype for a in operation.arguments} == {DTYPE}
    assert [(a.name, lengths(a, known), a.role) for a in operation.arguments] == list(
        zip(made.buffers, made.shapes(problem), made.roles, strict=True)
    )
    assert math.isqrt(ranks) ** 2 == ranks
