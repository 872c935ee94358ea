"""Oracles and conformance points of the kernels whose calls are timed, by operation."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from paceline.base.families.family import Scalar, load_family
from paceline.families.kernels.core.operators import Operator
from paceline.families.kernels.core.planning.arithmetic import Arithmetic
from paceline.families.kernels.core.planning.operation import TimedOperation

_OPS = "paceline.families.kernels.ops"
ARITHMETIC: Mapping[str, Arithmetic] = {
    name: operation.arithmetic
    for name, operation in load_family("kernels").operations.items()
    if isinstance(operation, TimedOperation)
}
OPERATORS: Mapping[str, Operator] = {
    name: importlib.import_module(f"{_OPS}.{name}.run").OPERATOR for name in ARITHMETIC
}
POINTS: Mapping[str, Mapping[str, Scalar]] = {
    name: importlib.import_module(f"{_OPS}.{name}.conformance").POINT for name in ARITHMETIC
}
