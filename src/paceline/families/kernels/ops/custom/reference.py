"""The oracle of an operation that a file defines: its own reference, computed once more in float64.

The file is its owner's and is believed; candidates are not. Where the reference cannot be computed in float64 (it
names a narrower type itself), its own result in the case's type is the truth, within the tolerance of KernelBench.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.families.kernels.api.custom import GIVEN, as_plain, built, called, outputs_of
from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Expected,
    Params,
    TensorSpec,
    exactly,
    within,
)
from paceline.families.kernels.core.timing_process.client import DTYPE_NAMES
from paceline.worker.ranks.session import CaseError

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""Absolute and relative, as KernelBench's; used only where there is no float64 result."""
ULPS = 4.0
FLOAT64 = "the reference in float64, with a bound from its own error"
STATED = "the reference's own result, within {:g} absolute and relative: it cannot be computed in float64"


class Custom(BaseOperator):
    """What a file's ``Model`` or ``run`` computes of its ``get_inputs``.

    Args:
        path: The file, in KernelBench's layout.
        workload: Which of its sets of inputs.
        dtype: Of floating-point inputs and weights.
        device: On which it is computed.

    Raises:
        CaseError: The file cannot be used: it fails, draws random numbers while computing, or has other arguments or
            results than tensors.
    """

    name = "custom"
    scalable = False

    def __init__(self, path: Path, workload: int, dtype: torch.dtype, device: str) -> None:
        self.dtype, self.device = dtype, torch.device(device)
        with _Reasons(path):
            module = _module(path)
            self._inputs = _inputs_function(module, workload)
            arguments = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
            init = as_plain(arguments)
            self.pattern, tensors = self._arguments(seed=0)
            self.plain = built(module.Model, arguments, dtype, self.device)
            found = outputs_of(called(self.plain, self.pattern, tensors))
            self._check(found, outputs_of(called(self.plain, self.pattern, tensors)))
            self.wide = self._in_float64(tensors, found)
        self.inputs = [_spec(f"input {i}", t, t.dtype) for i, t in enumerate(tensors)]
        self.kinds = [t.dtype for t in found]
        # Whole numbers travel as float64, which holds them exactly and can be poisoned.
        self.outputs = [
            _spec(f"output {i}", t, t.dtype if t.is_floating_point() else torch.float64)
            for i, t in enumerate(found)
        ]
        self.oracle = FLOAT64 if self.wide is not None else STATED.format(TOLERANCE[dtype])
        described = {
            "init": init,
            "arguments": self.pattern,
            "outputs": [{"dtype": str(d)} for d in self.kinds],
        }
        self.given = {GIVEN: json.dumps(described)}

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the tensors among the reference's arguments, and its results."""
        return self.inputs, self.outputs

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return none: the shapes are the file's."""
        return []

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Let the file draw inputs after a seed; their magnitude is the file's, whose inputs may have a domain."""
        with _Reasons(Path("get_inputs")):
            pattern, tensors = self._arguments(seed)
            if pattern != self.pattern or [(t.shape, t.dtype) for t in tensors] != [
                (torch.Size(s.shape), s.dtype) for s in self.inputs
            ]:
                raise CaseError("unsupported", "get_inputs gives other shapes or constants from call to call")
            plain = outputs_of(called(self.plain, pattern, [t.clone() for t in tensors]))
            wide = None
            if self.wide is not None:
                wide = outputs_of(called(self.wide, pattern, [_widened(t) for t in tensors]))
        expected = tuple(
            self._expected(value, None if wide is None else wide[number])
            for number, value in enumerate(plain)
        )
        return Draw(inputs=tuple(tensors), expected=expected)

    def _expected(self, plain: Tensor, wide: Tensor | None) -> Expected:
        if not plain.is_floating_point():
            return exactly(plain if wide is None else wide)
        if wide is not None:
            return within(wide, plain, plain.dtype, ulps=ULPS)
        tolerance = TOLERANCE[self.dtype]
        value = plain.to(torch.float64)
        return Expected(
            value=value, bound=tolerance + tolerance * value.abs(), max_relative_l2=10 * tolerance
        )

    def _arguments(self, seed: int) -> tuple[list[list[Any]], list[Tensor]]:
        """Return the pattern of a call and its tensors, drawn after a seed, floating-point ones in the case's type."""
        with torch.random.fork_rng():
            torch.manual_seed(seed % (1 << 63))
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
            given = self._inputs()
        pattern: list[list[Any]] = []
        tensors: list[Tensor] = []
        for value in given:
            if isinstance(value, Tensor):
                pattern.append(["tensor", len(tensors)])
                kept = value.detach().to(self.device)
                tensors.append((kept.to(self.dtype) if kept.is_floating_point() else kept).contiguous())
            else:
                pattern.append(["value", as_plain(value)])
        for number, tensor in enumerate(tensors):
            if tensor.dtype not in DTYPE_NAMES:
                raise CaseError(
                    "unsupported", f"input {number} is of {tensor.dtype}; known: {_known_dtypes()}"
                )
        return pattern, tensors

    @staticmethod
    def _check(found: Sequence[Any], again: Sequence[Any]) -> None:
        for number, (one, other) in enumerate(zip(found, again, strict=True)):
            if not isinstance(one, Tensor):
                raise CaseError("unsupported", f"output {number} of the reference is a {type(one).__name__}")
            if one.is_floating_point() and not bool(torch.isfinite(one).all()):
                raise CaseError("unsupported", f"output {number} of the reference holds NaN or infinity")
            if not torch.equal(one, other):
                reason = "the reference gives another result for the same inputs; dropout, or a state that it keeps?"
                raise CaseError("unsupported", reason)

    def _in_float64(self, tensors: Sequence[Tensor], found: Sequence[Tensor]) -> Callable[..., Any] | None:
        """Return the reference in float64, or None where it does not compute in it."""
        wide: Callable[..., Any] = copy.deepcopy(self.plain)
        if isinstance(wide, torch.nn.Module):
            wide = wide.double()
        try:
            results = outputs_of(called(wide, self.pattern, [_widened(t) for t in tensors]))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None
        kept = all(
            r.dtype == torch.float64 for r, f in zip(results, found, strict=True) if f.is_floating_point()
        )
        return wide if kept else None


class _Reasons:
    """Turns whatever a reference raises into a reason."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, CaseError):
            text = f"the reference fails: {type(error).__name__}: {error}"[:500]
            raise CaseError("crashed", text, traceback.format_exc(limit=8)) from error


def _module(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"reference_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _inputs_function(module: ModuleType, workload: int) -> Callable[[], Sequence[Any]]:
    several: Sequence[Callable[[], Sequence[Any]]] | None = getattr(module, "PACELINE_WORKLOADS", None)
    if several is not None:
        return several[workload]
    found: Callable[[], Sequence[Any]] = module.get_inputs
    return found


def _spec(name: str, tensor: Tensor, dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(name=name, shape=tuple(tensor.shape), dtype=dtype)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor.clone()


def _known_dtypes() -> str:
    return ", ".join(DTYPE_NAMES.values())
