"""Judges outputs against float64 results, and finds out whether the judgement could be fooled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.kernels.core.operators import Draw, Expected, Operator, TensorSpec, known_wrong

PIECE = 1 << 16
"""Elements that are judged at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the oracle says of one call's outputs."""

    passed: bool
    reason: str | None = None
    relative_error: float = 0.0
    """‖error‖ / ‖reference‖ of the worst output."""


def judge(
    expected: Sequence[Expected], outputs: Sequence[Tensor], factors: Sequence[float], names: Sequence[str]
) -> Check:
    """Judge all outputs of one call.

    Args:
        expected: What they must be, before factors.
        outputs: What they are, in their own dtypes.
        factors: Powers of two by which the call's inputs scaled each output.
        names: Names of the outputs, for reasons.
    """
    worst = 0.0
    for one, output, factor, name in zip(expected, outputs, factors, names, strict=True):
        check = _judge_one(one, output, factor, name)
        if not check.passed:
            return check
        worst = max(worst, check.relative_error)
    return Check(passed=True, relative_error=worst)


def _judge_one(expected: Expected, output: Tensor, factor: float, name: str) -> Check:
    if tuple(output.shape) != tuple(expected.value.shape):
        return Check(
            passed=False, reason=f"{name} has shape {tuple(output.shape)}, not {tuple(expected.value.shape)}"
        )
    # Most outputs are right: they are read through once, and only what may be wrong is looked at for a reason.
    relative = _relative_error(expected, output, factor) if output.device.type == "cpu" else math.nan
    if relative is not None and relative <= expected.max_relative_l2 and math.isfinite(relative):
        return Check(passed=True, relative_error=relative)
    actual = output.to(torch.float64)
    if factor != 1.0:
        # Exact, being a power of two: the bounds of the unscaled result hold as they are.
        actual = actual / factor
    # Before the bounds: comparisons with NaN are false, so that NaN would count as inside.
    if not bool(torch.isfinite(actual).all()):
        bad = int(torch.isfinite(actual).logical_not().view(-1).to(torch.uint8).argmax())
        return Check(passed=False, reason=f"{name} holds NaN or infinity, first at {bad}")
    if isinstance(expected.bound, float) and expected.bound == 0.0:
        return _judge_exact(expected, output, actual, name)
    error = actual - expected.value
    norm = float(expected.value.norm())
    relative = float(error.norm()) / norm if norm else float(error.norm())
    # Elementwise, since a norm hides one wrong element among many right ones.
    outside = error.abs() > expected.bound
    if bool(outside.any()):
        bad = int(outside.view(-1).to(torch.uint8).argmax())
        reason = (
            f"{int(outside.sum())} of {output.numel()} elements of {name} are outside the bound, first at {bad}: "
            f"{actual.view(-1)[bad].item():.9g} instead of {expected.value.view(-1)[bad].item():.9g}"
        )
        return Check(passed=False, reason=reason, relative_error=relative)
    # And the norm, since a bound wide enough for the worst element would admit every element being that wrong.
    if relative > expected.max_relative_l2:
        reason = f"{name} has a relative error of {relative:.3g}, allowed are {expected.max_relative_l2:.3g}"
        return Check(passed=False, reason=reason, relative_error=relative)
    return Check(passed=True, relative_error=relative if math.isfinite(relative) else 0.0)


def _relative_error(expected: Expected, output: Tensor, factor: float) -> float | None:
    """Return ‖error‖ / ‖value‖, or None where an element is outside its bound; NaN or infinity where one is none.

    In pieces that stay in a cache: temporary tensors as large as the output cost several times as much.
    """
    value, flat = expected.value.reshape(-1), output.reshape(-1)
    exact = isinstance(expected.bound, float) and expected.bound == 0.0
    bounds = expected.bound
    if isinstance(bounds, Tensor):
        bounds = bounds.expand(expected.value.shape).reshape(-1)
    errors, values = 0.0, 0.0
    for start in range(0, flat.numel(), PIECE):
        here = slice(start, start + PIECE)
        right, piece = value[here].double(), flat[here].double()
        # Exact, being a power of two.
        piece = piece / factor if factor != 1.0 else piece
        if exact:
            if not torch.equal(piece, right.to(output.dtype).double()):
                return None
            continue
        piece = piece - right
        errors += float(torch.dot(piece, piece))
        values += float(torch.dot(right, right))
        if bool((piece.abs_() > (bounds[here] if isinstance(bounds, Tensor) else bounds)).any()):
            return None
    return math.sqrt(errors / values) if values else math.sqrt(errors)


def _judge_exact(expected: Expected, output: Tensor, actual: Tensor, name: str) -> Check:
    # Rounded as the output is: the float64 value itself may have no equal in its dtype.
    right = expected.value.to(output.dtype).to(torch.float64)
    different = actual != right
    if not bool(different.any()):
        return Check(passed=True)
    bad = int(different.view(-1).to(torch.uint8).argmax())
    reason = (
        f"{int(different.sum())} of {output.numel()} elements of {name} differ, first at {bad}: "
        f"{actual.view(-1)[bad].item():.9g} instead of {right.view(-1)[bad].item():.9g}"
    )
    return Check(passed=False, reason=reason)


def blind_spots(operator: Operator, draws: Sequence[Draw], outputs: Sequence[TensorSpec]) -> list[str]:
    """Name the known-wrong results that the oracle would accept on every draw; an empty list clears a point."""
    names = [s.name for s in outputs]
    accepted: set[str] = set()
    rejected: set[str] = set()
    for index, draw in enumerate(draws):
        for name, candidate in known_wrong(operator, draw, draws[index - 1], outputs, without=rejected):
            (accepted if _accepted(draw.expected, candidate, names) else rejected).add(name)
    return sorted(accepted - rejected)


def _accepted(expected: Sequence[Expected], outputs: Sequence[Tensor], names: Sequence[str]) -> bool:
    """Return what ``judge`` would say, without its reason."""
    pairs = zip(expected, outputs, strict=True)
    if any(
        output.device.type == "cpu" and _relative_error(one, output, 1.0) is None for one, output in pairs
    ):
        return False
    return judge(expected, outputs, [1.0] * len(names), names).passed
