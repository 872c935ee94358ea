"""What a kernel is given, and what it must offer.

A technique of this family is a class or factory ``T(problem, **options)``. An instance has

    run(*inputs, *outputs) -> None

which fills the outputs in place; ``ops/<operation>/reference.py`` lists tensors and shapes of each operation.
One that keeps weights in a form of its own also has

    pack(*weights) -> tuple[Tensor, ...]

which is called untimed, once for each set of weights; ``run`` then gets the packed tensors where the weights stood.
Everything lives in a process of its own, without the oracle.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.worker.ranks.session import UnsupportedError

__all__ = ["TORCH_DTYPES", "Kernel", "Problem", "Tensor", "UnsupportedError", "default_workers", "use_triton"]

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
MULTIPROCESSORS = ("cube_core_num", "multi_processor_count", "gpu_subslice_count")
"""What runtimes call the units that multiply matrices; Ascend's count vector units as multiprocessors."""
FEW_WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One operation at one point."""

    operation: str
    dtype: torch.dtype
    device: torch.device
    params: Mapping[str, Any] = field(default_factory=dict)
    """All parameters of the case in base units."""

    def integer(self, name: str) -> int:
        """Return an integer parameter of the case, in base units.

        Raises:
            KeyError: The operation has no such parameter.
        """
        value = self.params[name]
        assert isinstance(value, int)
        return value

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return an uninitialised tensor of a shape, on the problem's device and in its dtype unless one is given."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


def use_triton(problem: Problem, backend: str) -> bool:
    """Tell whether a technique's Triton kernel runs: on accelerators, or where a suite asks for it.

    Args:
        problem: What the technique was made for.
        backend: The technique's option: ``auto``, ``torch`` or ``triton``.

    Raises:
        UnsupportedError: It has to run, but Triton is missing, or has no driver of the device.
    """
    wanted = backend == "triton" or (backend == "auto" and problem.device.type != "cpu")
    # Looked for without importing it: where it is missing the point is unsupported, which is no failure.
    if wanted and importlib.util.find_spec("triton") is None:
        raise UnsupportedError("needs triton, which is not installed here")
    if wanted and problem.device.type != "cpu" and not _triton_drives_an_accelerator():
        raise UnsupportedError("needs a triton with a driver of this device")
    return wanted


def _triton_drives_an_accelerator() -> bool:
    """Tell whether one of Triton's drivers finds its device here, or its interpreter stands in for all of them."""
    import triton.backends  # noqa: PLC0415 - where a technique is about to import it anyway

    interpreted = getattr(getattr(triton, "knobs", None), "runtime", None)
    if getattr(interpreted, "interpret", False):
        return True
    return any(backend.driver.is_active() for backend in triton.backends.backends.values())


def default_workers(problem: Problem) -> int:
    """Return the device's multiprocessors; on CPUs, where workers take turns, and where none are told of, eight."""
    # Any number above one exercises the splits of a schedule; it says nothing of the cores.
    if problem.device.type == "cpu":
        return FEW_WORKERS
    properties = getattr(torch, problem.device.type).get_device_properties(problem.device)
    counts = (getattr(properties, name, None) for name in MULTIPROCESSORS)
    return next((int(count) for count in counts if count), FEW_WORKERS)


class Kernel(Protocol):
    """An instance of a technique."""

    def run(self, *tensors: Tensor) -> None:
        """Compute the outputs (the last arguments) from the inputs (the first ones)."""
        ...
