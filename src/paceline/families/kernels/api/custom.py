"""Candidates in other projects' layouts behind this family's interface: a module or function that returns tensors.

``paceline kernel`` writes a technique around each file that it is given: a subclass of ``ModuleKernel`` at its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from paceline.base.counting import number_of
from paceline.families.kernels.api.problem import Problem
from paceline.worker.ranks.session import CaseError

__all__ = ["GIVEN", "SEED", "ModuleKernel", "as_plain", "built", "called", "from_plain", "outputs_of"]

SEED = 42
"""Of weights: reference and candidates are built after the same seed, as KernelBench does."""
GIVEN = "_given"
"""Parameter that the judge adds to a point: what the reference says of arguments and outputs, as JSON."""
_Tensor, _type = Tensor, type


def as_plain(value: Any) -> Any:
    """Return an argument of a constructor or a call as JSON can hold it.

    Raises:
        CaseError: ``unsupported``: it is none of numbers, texts, None, lists, tuples and dictionaries.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {_type(value).__name__: [as_plain(v) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: as_plain(v) for key, v in value.items()}}
    raise CaseError("unsupported", f"an argument is a {_type(value).__name__}, which cannot be handed on")


def from_plain(data: Any) -> Any:
    """Return what ``as_plain`` was given."""
    if not isinstance(data, dict):
        return data
    ((kind, inside),) = data.items()
    if kind == "dict":
        return {key: from_plain(v) for key, v in inside.items()}
    values = [from_plain(v) for v in inside]
    return tuple(values) if kind == "tuple" else values


def built(
    model: Any, arguments: Sequence[Any], dtype: torch.dtype, device: torch.device
) -> Callable[..., Any]:
    """Return what is called: an instance of a module's class with the weights of ``SEED``, or the function itself."""
    if not isinstance(model, type):
        return model  # type: ignore[no-any-return]  # a function
    torch.manual_seed(SEED)
    made = model(*arguments)
    if isinstance(made, torch.nn.Module):
        made = made.to(device)
        # float32 is what modules are made in; their integer buffers stay.
        made = made if dtype == torch.float32 else made.to(dtype)
    return made  # type: ignore[no-any-return]


def called(model: Callable[..., Any], pattern: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
    """Call a model with tensors and constants.

    Args:
        model: As ``built`` returns it.
        pattern: For each argument the number of a tensor, or a constant: ``["tensor", 0]`` or ``["value", plain]``.
        tensors: The inputs.
    """
    arguments = [tensors[what] if kind == "tensor" else from_plain(what) for kind, what in pattern]
    with torch.no_grad():
        return model(*arguments)


def outputs_of(found: Any) -> list[Any]:
    """Return what a call returned as a list; of a dictionary the values in the order of their names."""
    if isinstance(found, dict):
        return [found[name] for name in sorted(found)]
    return list(found) if isinstance(found, list | tuple) else [found]


class ModuleKernel:
    """A candidate of others: called with the inputs; what it returns is copied into the outputs, as part of the time.

    Args:
        problem: The operation ``custom`` at its point.
    """

    model: ClassVar[Any] = None
    """A module's class, which is made with the reference's ``get_init_inputs``, or a function, as ``staticmethod``."""
    fills: ClassVar[bool] = False
    """The outputs are its last arguments, and it returns nothing."""

    def __init__(self, problem: Problem) -> None:
        given: Mapping[str, Any] = json.loads(problem.params[GIVEN])
        self._pattern: Sequence[Any] = given["arguments"]
        self._outputs: Sequence[Mapping[str, Any]] = given["outputs"]
        model = type(self).model
        self._called = built(model, from_plain(given["init"]), problem.dtype, problem.device)

    def run(self, *tensors: Tensor) -> None:
        """Compute the outputs, which are the last of the tensors, from the inputs before them."""
        count = len(tensors) - len(self._outputs)
        inputs, outputs = tensors[:count], tensors[count:]
        if self.fills:
            pattern = [*self._pattern, *(("tensor", count + i) for i in range(len(outputs)))]
            called(self._called, pattern, tensors)
            return
        found = outputs_of(called(self._called, self._pattern, inputs))
        if len(found) != len(outputs):
            raise CaseError(
                "incorrect", f"returned {number_of(len(found), 'output')}, the reference {len(outputs)}"
            )
        for number, (value, target, wanted) in enumerate(zip(found, outputs, self._outputs, strict=True)):
            problem = _strange(value, target, wanted)
            if problem is not None:
                raise CaseError("incorrect", f"output {number} {problem}")
            target.copy_(value)


def _strange(value: Any, target: Tensor, wanted: Mapping[str, Any]) -> str | None:
    """Say in what an output differs from the reference's but for its numbers; None where in nothing."""
    # A subclass of Tensor could put the work off until somebody reads it.
    if _type(value) not in (_Tensor, torch.nn.Parameter):
        return f"is a {_type(value).__name__}, and not a plain tensor"
    if tuple(value.shape) != tuple(target.shape):
        return f"has shape {tuple(value.shape)}, not {tuple(target.shape)}"
    if str(value.dtype) != wanted["dtype"]:
        return f"is of {value.dtype}, not {wanted['dtype']}"
    if value.device != target.device:
        return f"is on {value.device}, not on {target.device}"
    return None
