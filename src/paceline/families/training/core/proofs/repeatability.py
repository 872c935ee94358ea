"""How far a device's own runs lie apart, and what is done so that they do not while a technique is proved.

On a CPU a step repeats itself bit by bit. On accelerators it need not: attention's backward and other sums add with
atomic operations, in the order in which blocks happen to end, and Adam's first step turns a gradient of which only the
sign is uncertain into a whole update. So proofs run with deterministic algorithms where there are such, and one process
computes each step's gradients again: what it then deviates from itself is what no technique can be held to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW

from paceline.families.training.api.replica import Replica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs.oracle import REPEATABLE, OwnDeviation, squares
from paceline.families.training.core.proofs.serial import gradient_of, leave_gradients
from paceline.worker.ranks.session import CaseError, Session

AGAIN = 2
"""Further times that one process computes gradients, once the second were others than the first."""
BLAS_WORKSPACE, FIXED_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""Without it torch's strict mode refuses every product: cuBLAS may split sums by whatever workspace is free."""


def repeats_itself(device: torch.device) -> bool:
    """Tell whether the same operations on a device give the same bits for certain."""
    return device.type == "cpu"


@contextmanager
def deterministic(setting: Setting) -> Iterator[None]:
    """Let operations inside add in a fixed order, where the device has a way to.

    Compiled layers stay as they are: a compiler guards on the mode, and would compile again on the clock.
    """
    if repeats_itself(setting.device) or setting.compiled:
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fill: Any = torch.utils.deterministic  # its only attribute is one of the module's class, unknown to mypy
    filled = fill.fill_uninitialized_memory
    workspace = os.environ.get(BLAS_WORKSPACE)
    os.environ.setdefault(BLAS_WORKSPACE, FIXED_WORKSPACE)
    # Only warned of where there is no such algorithm: what it deviates is measured. Attention's backward is strict
    # (model.causal_attention), since its kernels take a mode that only warns for none.
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Empty tensors stay empty: filling them is work that no technique does when it is timed.
    fill.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        fill.fill_uninitialized_memory = filled
        if workspace is None:
            os.environ.pop(BLAS_WORKSPACE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Gradients of one step that one process found when it computed them again; none where the bits were the same."""

    gradients: Sequence[Sequence[Tensor]] = ()
    """On the host: a large model has no room for them beside its activations."""


def leave_repeated(serial: Replica, setting: Setting, whole_BS: Tensor, world_size: int) -> Repeated:
    """Leave the gradients of the whole batch in one process's replica, and return what it found at other times."""
    leave_gradients(serial, setting, whole_BS, world_size)
    if repeats_itself(setting.device):
        return Repeated()
    first = _checksums(serial)
    leave_gradients(serial, setting, whole_BS, world_size)
    if _checksums(serial) == first:
        return Repeated()
    found: list[list[Tensor]] = []
    for _ in range(AGAIN):
        found.append([gradient_of(p).cpu() for p in _trained(serial)])
        leave_gradients(serial, setting, whole_BS, world_size)
    return Repeated(gradients=found)


def _checksums(serial: Replica) -> list[list[int]]:
    """Return sums over the bits of each gradient: they are equal for equal bits, and no gradient has to be kept."""
    sums = []
    for parameter in _trained(serial):
        bits = gradient_of(parameter).contiguous().view(torch.int32).long()
        # Of integers, which wrap around: no order of addition changes them.
        sums.append(torch.stack([bits.sum(), bits.square().sum()]))
    found: list[list[int]] = torch.stack(sums).tolist()
    return found


def noise_of(serial: Replica, repeated: Repeated) -> list[float] | None:
    """Return the deviation of the gradient of each weight on this device, from its repetitions; None where it has none.

    A root mean square over the tensor: two repetitions of one element say little of how far it may fall.

    Args:
        serial: With the gradients of the last time.
        repeated: Those of the other times.
    """
    if not repeated.gradients:
        return None
    found: list[float] = []
    others = zip(*repeated.gradients, strict=True)
    for parameter in serial.model.parameters():
        if not parameter.requires_grad:
            found.append(0.0)
            continue
        here = gradient_of(parameter).double().cpu()
        squared = [float((other.double() - here).square().mean()) for other in next(others)]
        # two gradients differ by √2 of what one deviates
        found.append(math.sqrt(sum(squared) / len(squared) / 2))
    return found


def own_deviation(
    session: Session,
    setting: Setting,
    serial: Replica,
    repeated: Repeated,
    *,
    begin: Sequence[Tensor],
    allowed: Sequence[Tensor],
    widened: Sequence[Tensor],
    step: int,
) -> OwnDeviation:
    """Return how far one process's repetitions of a step lie apart on this rank's device.

    Args:
        session: The rank.
        setting: The point's.
        serial: After the step.
        repeated: Gradients of the other times.
        begin: Weights before the step.
        allowed: What each element may differ before it counts, on a device that repeats itself.
        widened: The same with what the device's noise may decide.
        step: From 0.

    Raises:
        CaseError: ``unsupported``, on all ranks: so far on some rank's that nothing can be proved there.
    """
    if repeats_itself(setting.device):
        return REPEATABLE
    found = whole = REPEATABLE
    # One that has diverged is told of as such, and has no distance from itself.
    if all(bool(torch.isfinite(w).all()) for w in serial.weights()):
        whole = deviation(serial, repeated, begin, allowed, step)
        found = deviation(serial, repeated, begin, widened, step)
    # Not the technique's fault: it is not incorrect, and no number of it may be shown either. What the noise decides
    # counts here: where that is much, little is left that a technique could be held to.
    undecidable = session.control.first_problem(whole.undecidable(plain=setting.optimizer == "sgd"))
    if undecidable is not None:
        raise CaseError("unsupported", undecidable)
    return found


def deviation(
    serial: Replica, repeated: Repeated, begin: Sequence[Tensor], allowed: Sequence[Tensor], step: int
) -> OwnDeviation:
    """Return how far from where it is one process would be, had it stepped with the gradients of another time.

    Arguments as in ``own_deviation``.
    """
    way = norm = 0.0
    tensors = {n for n, p in enumerate(serial.model.parameters()) if p.requires_grad}
    for gradients in repeated.gradients:
        square = length = 0.0
        others = iter(gradients)
        for number, weight in enumerate(serial.model.parameters()):
            here = weight.detach()
            other = here
            if number in tensors:
                other = _stepped_with(serial, weight, next(others).to(here.device), step)
            apart, moved = squares(other, here, begin[number], allowed[number])
            square, length = square + apart, length + moved
            plain, whole = squares(other, here)
            norm = max(norm, math.sqrt(plain) / max(math.sqrt(whole), 1e-300))
        way = max(way, math.sqrt(square) / max(math.sqrt(length), 1e-300))
    return OwnDeviation(of_way=way, of_norm=norm)


def _stepped_with(serial: Replica, weight: torch.nn.Parameter, other: Tensor, step: int) -> Tensor:
    """Return in float64 where a weight would be, had the step that was just taken used another gradient."""
    (group,) = serial.optimizer.param_groups
    here, gradient, other = weight.detach().double(), gradient_of(weight).double(), other.double()
    if not isinstance(serial.optimizer, AdamW):
        plain: Tensor = here - group["lr"] * (other - gradient)
        return plain
    state, (first, second) = serial.optimizer.state[weight], group["betas"]
    # From the moments after the step: they are linear in the gradient and in its square.
    mean, square = state["exp_avg"].double(), state["exp_avg_sq"].double()
    other_mean = mean + (1 - first) * (other - gradient)
    other_square = (square + (1 - second) * (other.square() - gradient.square())).clamp(min=0)
    update, other_update = (
        (m / (1 - first ** (step + 1))) / ((v / (1 - second ** (step + 1))).sqrt() + group["eps"])
        for m, v in ((mean, square), (other_mean, other_square))
    )
    found: Tensor = here - group["lr"] * (other_update - update)
    return found


def _trained(serial: Replica) -> list[torch.nn.Parameter]:
    return [p for p in serial.model.parameters() if p.requires_grad]
