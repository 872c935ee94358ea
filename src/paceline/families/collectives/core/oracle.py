"""The oracle: fills buffers, poisons outputs, and judges what a technique left in them.

Exact techniques are held to bit equality, or to an elementwise bound that follows from dtype and number of ranks.
Lossy ones are held to three things instead: exactness on payloads that their codec cannot damage, the same result on
all ranks, and the mean of repeated calls converging to the true sum (``gate``). For every draw the oracle first has to
reject outputs that are known to be wrong; if one passes, the case is invalid, not the technique.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.timed_operation import Expected, Instance, TimedOperation, known_wrong

# Bound before a technique is imported: one that replaced torch.equal would judge itself.
_equal = torch.equal
SCALES = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Powers of two: scaled inputs are fresh contents whose results are known exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The oracle's judgement of one call on one rank."""

    passed: bool
    reason: str | None = None
    relative_l2: float = 0.0
    max_error: float = 0.0
    bias: float = 0.0
    gain: float = 1.0
    cosine: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyRule:
    """What a single call of a lossy technique may do; the limits come from its gate, not from its author."""

    max_relative_l2: float
    min_cosine: float


class Workspace:
    """The buffers of one point, shared by all of its techniques, and the draws that fill them."""

    def __init__(self, operation: TimedOperation, problem: Problem, variants: Sequence[Instance]) -> None:
        self.operation = operation
        self.problem = problem
        self.variants = list(variants)
        self.buffers = [problem.empty(*shape) for shape in operation.shapes(problem)]
        # The address too: a technique that swaps a tensor's storage would hand over a result that it had ready.
        self._identity = [(b.data_ptr(), b.shape, b.dtype) for b in self.buffers]
        self.current = 0
        """Index of the draw that the buffers were last filled with."""
        self.scale = 1.0
        """Factor that the draw was scaled by."""

    def fill(self, variant: int, scale: float = 1.0) -> None:
        """Copy a draw into the inputs, scaled, and poison the outputs."""
        self.current, self.scale = variant, scale
        instance = self.variants[variant]
        for buffer, argument in zip(self.buffers, instance.arguments, strict=True):
            if argument is None:
                # Outputs that a call does not write must not be right by what an earlier call left there.
                poison(buffer)
            else:
                buffer.copy_(argument)
                if scale != 1.0:
                    buffer.mul_(_factor(buffer, scale))

    def check(self, lossy: LossyRule | None = None) -> Check:
        """Judge the buffers after a call."""
        for buffer, identity in zip(self.buffers, self._identity, strict=True):
            if (buffer.data_ptr(), buffer.shape, buffer.dtype) != identity:
                return Check(passed=False, reason="a buffer was resized or replaced")
        instance, scale = self.variants[self.current], self.scale
        outputs: list[Tensor | None] = []
        for name, role, buffer, argument, expected in zip(
            self.operation.buffers,
            self.operation.roles,
            self.buffers,
            instance.arguments,
            instance.expected,
            strict=True,
        ):
            if role == "in":
                assert argument is not None
                # Scaling by a power of two is exact, so the input can be compared bit by bit.
                pristine = argument if scale == 1.0 else argument * _factor(argument, scale)
                if not _same_bits(buffer, pristine):
                    return Check(passed=False, reason=f"the input '{name}' was changed")
            outputs.append(None if expected is None else buffer)
        return judge(instance, outputs, scale=scale, lossy=lossy)

    def fingerprint(self) -> str:
        """Return a digest of the outputs, to compare ranks."""
        digest = hashlib.sha256()
        for role, buffer in zip(self.operation.roles, self.buffers, strict=True):
            if role != "in":
                data = buffer.detach().cpu().contiguous().view(torch.uint8)
                digest.update(data.numpy().tobytes())
        return digest.hexdigest()[:16]


def _factor(tensor: Tensor, scale: float) -> float | int:
    """Return the factor in the tensor's own kind of number: integers are scaled by ±1 only."""
    return scale if tensor.dtype.is_floating_point else int(scale)


def poison(buffer: Tensor) -> None:
    """Fill a buffer with values that no right result holds."""
    if buffer.dtype.is_floating_point:
        buffer.fill_(float("nan"))
    else:
        buffer.fill_(torch.iinfo(buffer.dtype).min + 1)


def judge(
    instance: Instance,
    outputs: Sequence[Tensor | None],
    *,
    scale: float = 1.0,
    lossy: LossyRule | None = None,
) -> Check:
    """Compare outputs with what they must be; the worst output decides."""
    worst = Check(passed=True)
    for index, (expected, output) in enumerate(zip(instance.expected, outputs, strict=True)):
        if expected is None or output is None:
            continue
        check = _judge_one(expected, output, scale, lossy)
        if not check.passed:
            return Check(
                passed=False,
                reason=f"output {index}: {check.reason}",
                relative_l2=check.relative_l2,
                max_error=check.max_error,
                bias=check.bias,
                gain=check.gain,
                cosine=check.cosine,
            )
        if check.relative_l2 >= worst.relative_l2:
            worst = check
    return worst


def _judge_one(expected: Expected, output: Tensor, scale: float, lossy: LossyRule | None) -> Check:
    value = expected.value
    if expected.exact and lossy is None:
        right = value if scale == 1.0 else value * _factor(value, scale)
        if _same_bits(output, right.to(output.dtype)):
            return Check(passed=True)
        return _explain(output, right)
    reference = value.to(torch.float64)
    actual = output.to(torch.float64)
    if scale != 1.0:
        # The output is scaled back, exactly, instead of the reference: bounds and figures then hold as they are.
        actual.mul_(1.0 / scale)
    error = actual - reference
    figures = _figures(actual, reference, error)
    # Before the bounds: every comparison with NaN is false, also the one that would find an element outside.
    if not math.isfinite(figures.relative_l2):
        return Check(passed=False, reason="the result holds NaN or infinity")
    if lossy is not None:
        if figures.relative_l2 > lossy.max_relative_l2:
            reason = f"relative error {figures.relative_l2:.3g} exceeds {lossy.max_relative_l2:.3g}"
            return replace(figures, passed=False, reason=reason)
        # An error limit near 1 admits an output of zeros, or one of the wrong sign; the direction does not.
        if figures.cosine < lossy.min_cosine:
            reason = f"cosine to the true result {figures.cosine:.3g} is below {lossy.min_cosine:.3g}"
            return replace(figures, passed=False, reason=reason)
        return figures
    # Elementwise: a norm over the buffer would hide one wrong element among many right ones.
    within = error.abs() <= expected.bound
    if bool(within.all()):
        return figures
    bad = int((~within).view(-1).to(torch.uint8).argmax())
    reason = (
        f"{int((~within).sum())} of {output.numel()} elements are outside the bound, first at {bad}: "
        f"{actual.view(-1)[bad].item():.9g} instead of {reference.view(-1)[bad].item():.9g}"
    )
    return replace(figures, passed=False, reason=reason)


def _figures(actual: Tensor, reference: Tensor, error: Tensor) -> Check:
    norm = float(reference.norm())
    largest = float(reference.abs().max()) if reference.numel() else 0.0
    mean = float(reference.abs().mean()) if reference.numel() else 0.0
    error_norm, actual_norm = float(error.norm()), float(actual.norm())
    product = float(actual.view(-1) @ reference.view(-1)) if reference.numel() else 0.0
    return Check(
        passed=True,
        # Of a reference that is zero, such as a sparse draw, the error itself is held to the limit.
        relative_l2=error_norm / norm if norm else error_norm,
        max_error=float(error.abs().max()) / largest if largest else 0.0,
        bias=float(error.mean()) / mean if mean else 0.0,
        gain=product / norm**2 if norm else 1.0,
        cosine=product / (norm * actual_norm) if norm and actual_norm else float(norm == actual_norm),
    )


def _explain(output: Tensor, right: Tensor) -> Check:
    different = (output != right.to(output.dtype)) | (output != output)  # noqa: PLR0124 - NaN differs from itself
    count = int(different.sum())
    first = int(different.view(-1).to(torch.uint8).argmax())
    reason = (
        f"{count} of {output.numel()} elements differ, first at {first}: "
        f"{output.view(-1)[first].item()} instead of {right.view(-1)[first].item()}"
    )
    return Check(passed=False, reason=reason, relative_l2=float("inf"), cosine=0.0)


def _same_bits(left: Tensor, right: Tensor) -> bool:
    """Compare without the rule that NaN differs from NaN mattering: inputs and references never hold NaN."""
    return bool(_equal(left, right))


LOSSY_BLIND = ("own-input", "low-precision", "truncated-tail", "skipped-rank", "double-reduction")
"""What one lossy call cannot show; the gate's repeated and lossless calls do."""


def blind_spots(
    operation: TimedOperation, variants: Sequence[Instance], lossy: LossyRule | None
) -> list[str]:
    """Name the known-wrong outputs that the oracle would accept for a point; an empty list clears it.

    One draw may accept a wrong output by chance (a missing element that is nearly zero anyway), but calls use all:
    it is a blind spot only if every draw accepts it.
    """
    accepted: dict[str, bool] = {}
    for index, instance in enumerate(variants):
        # The draw before this one gives the stale output (the last one for the first).
        for name, outputs in known_wrong(instance, variants[index - 1], operation.roles):
            if not accepted.get(name, True) or (lossy is not None and name in LOSSY_BLIND):
                continue
            accepted[name] = judge(instance, outputs, lossy=lossy).passed
    return [name for name, passed in accepted.items() if passed]
