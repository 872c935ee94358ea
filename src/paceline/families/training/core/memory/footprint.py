"""What training needs of a rank's memory, from the technique's closed form and a step on tensors without memory.

The model and its sequences are fake tensors (``torch.compile``'s own): operations give shapes, dtypes and storages of
the right length and compute nothing, so that a model of 70 G parameters is planned in seconds on any machine. The step
is forward and backward of the rank's sequences on one process; what techniques make beside it (gathered layers,
buckets, messages) is not in it, and the state is what their ``cost`` states.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from paceline.base.families.family import Params
from paceline.base.families.footprint import Footprint
from paceline.base.techniques.options import taken_by
from paceline.families.training.api.model import Transformer, next_symbol_loss
from paceline.families.training.api.replica import Cost, Task
from paceline.families.training.api.sizes import Size, num_symbols, size_of
from paceline.families.training.core.data.setting import TORCH_DTYPES
from paceline.families.training.core.memory.transients import Transients
from paceline.families.training.core.planning.legality import number
from paceline.families.training.core.planning.parameters import ACTIVATIONS, RECOMPUTED


def footprint(params: Params, module: str, options: Mapping[str, Any]) -> Footprint:
    """Return what a technique needs at a point; see ``Foretell``."""
    size, context = size_of(params), number(params, "context")
    vocabulary = num_symbols(size, str(params["data"]))
    rows = number(params, "batch") // number(params, "ranks")
    with FakeTensorMode():
        model = Transformer(size, vocabulary=vocabulary, context=context)
        state_bytes = _state_bytes(model, params, module, options)
    return Footprint(
        parameters=size.parameters(vocabulary),
        state_bytes=state_bytes,
        activation_bytes=_activation_bytes(
            size, vocabulary, rows, context, str(params["dtype"]), params[ACTIVATIONS.name] == RECOMPUTED
        ),
    )


@cache
def _activation_bytes(
    size: Size, vocabulary: int, rows: int, context: int, dtype: str, recomputes: bool
) -> float:
    """Return the most that a step keeps beside the state; all techniques of a point have the same."""
    with FakeTensorMode():
        model = Transformer(size, vocabulary=vocabulary, context=context)
        model.narrow = TORCH_DTYPES.get(dtype)
        if recomputes:
            model.recompute_layers()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_let_go)  # type: ignore[no-untyped-call]  # as below
        sequences_BS = torch.zeros(rows, context + 1, dtype=torch.int64)
        counted = Transients()
        with counted:
            next_symbol_loss(model, sequences_BS).backward()  # type: ignore[no-untyped-call]  # torch's own is missing
    return float(counted.peak_bytes)


def _let_go(parameter: torch.Tensor) -> None:
    # Gradients are of the state, in which they count for as long as the technique keeps them.
    parameter.grad = None


def _state_bytes(model: Transformer, params: Params, module: str, options: Mapping[str, Any]) -> float | None:
    task = Task(
        model=model,
        rank=0,
        world_size=number(params, "ranks"),
        device=torch.device("cpu"),
        seed=0,
        steps=number(params, "steps"),
        optimizer_name=str(params["optimizer"]),
        peak_rate=1.0,
        warmup_steps=number(params, "warmup_steps"),
        tokens=number(params, "batch") * number(params, "context"),
        context=number(params, "context"),
    )
    function = importlib.import_module(module).cost
    found = function(task, **taken_by(function, options))
    return found.state_bytes if isinstance(found, Cost) else None
