"""A timed operation: its buffers, its inputs, and the float64 result that every technique is held to.

An operation draws the inputs of all ranks, so that each rank computes its own expected output without talking to
anyone. The oracle lives here, in ``oracle``, and in the operations' folders; techniques never see it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.planning.operation import CollectiveOperation

Role = Literal["in", "out", "inout"]

# 2⁻ᵖ for p bits of significand, the hidden one included.
UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The right content of one output buffer on one rank."""

    value: Tensor
    """In the output's dtype where it must be bit-exact, else float64."""
    bound: Tensor | float = 0.0
    """Largest allowed absolute error of each element; 0 means bit-exact."""
    contributions: tuple[Tensor, ...] = ()
    """For sums: what each rank contributes, so that known-wrong sums can be formed."""

    @property
    def exact(self) -> bool:
        """True when the output must equal the value bit by bit."""
        return isinstance(self.bound, float) and self.bound == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Inputs and expected outputs of one rank for one draw."""

    arguments: tuple[Tensor | None, ...]
    """Pristine content of each buffer; None for pure outputs, which are poisoned instead."""
    expected: tuple[Expected | None, ...]
    """For each buffer: what it must hold afterwards; None when its content is not defined on this rank."""
    wrong: tuple[tuple[str, tuple[Tensor | None, ...]], ...] = ()
    """Further known-wrong outputs that this operation can form, by name."""


class TimedOperation(ABC):
    """One collective as ranks run it; its folder holds the subclass."""

    spec: ClassVar[CollectiveOperation]
    buffers: ClassVar[tuple[str, ...]]
    """Names of ``run``'s arguments."""
    roles: ClassVar[tuple[Role, ...]]
    """What each argument is: input, output, or both."""
    scalable: ClassVar[bool] = True
    """True when scaling the inputs by a power of two scales the outputs exactly."""

    @property
    def name(self) -> str:
        """The operation's name in suites."""
        return self.spec.name

    @abstractmethod
    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each buffer on this rank."""

    @abstractmethod
    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw inputs for all ranks and compute what this rank must end with."""

    def least_sent(self, problem: Problem) -> int:
        """Return the elements that the busiest of several ranks must send at the least for a lossless result."""
        return 0


class InPlace(TimedOperation):
    """An operation on one buffer of S that is input and output."""

    buffers = ("buffer",)
    roles = ("inout",)

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return one shape: (count,)."""
        return ((problem.count,),)


def sum_bound(parts: Sequence[Tensor], dtype: torch.dtype, num_roundings: int) -> Tensor:
    """Return the elementwise error bound of a sum in any order: k·u·Σ|xᵣ| with u the unit roundoff.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., eq. 4.4 (first order). ``num_roundings``
    is n − 1 for the additions; one more covers the conversion of the reference. The float64 reference of a float64 sum
    rounds as often as the sum itself, so there both are counted.
    """
    if dtype == torch.float64:
        num_roundings *= 2
    magnitude = torch.zeros_like(parts[0], dtype=torch.float64)
    for part in parts:
        magnitude += part.abs().to(torch.float64)
    # The formula is of first order; one per cent stands for the higher ones.
    return magnitude.mul_((num_roundings + 1) * UNIT_ROUNDOFF[dtype] * 1.01)


def exact_sum(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum in float64, or in the integer dtype itself."""
    wide = torch.float64 if parts[0].dtype.is_floating_point else parts[0].dtype
    # Integers stay integers: float64 would round sums beyond 2⁵³.
    total = torch.zeros(parts[0].shape, dtype=wide, device=parts[0].device)
    for part in parts:
        total += part
    return total


def sum_expected(parts: Sequence[Tensor], *, exact: bool) -> Expected:
    """Return what a sum over ranks must give: bit-exact for exactly representable inputs, else within the bound."""
    dtype = parts[0].dtype
    total = exact_sum(parts)
    if exact or not dtype.is_floating_point:
        return Expected(value=total.to(dtype), contributions=tuple(parts))
    return Expected(value=total, bound=sum_bound(parts, dtype, len(parts) - 1), contributions=tuple(parts))


def approximate(value: Tensor, naive: Tensor) -> Expected:
    """Return an expected output whose tolerance follows from the error of a plain computation in working precision.

    The allowed error of an element is eight times the naive result's largest error, plus eight units of roundoff of the
    largest reference value: reordering and blocking change which roundings occur, not their size. In float64 the
    reference rounds as the naive result does, so that their difference says nothing: there 64 units are allowed.
    """
    wide = value.to(torch.float64)
    # The yardstick is what a plain computation loses: a worst-case bound grows with the length of the reduction
    # and would let wrong results pass.
    error = (naive.to(torch.float64) - wide).abs().max().item()
    units = 64 if naive.dtype == torch.float64 else 8
    floor = units * UNIT_ROUNDOFF.get(naive.dtype, 0.0) * wide.abs().max().item()
    bound = torch.full((1,), 8 * error + floor, dtype=torch.float64, device=wide.device)
    return Expected(value=wide, bound=bound)


def known_wrong(
    instance: Instance, other: Instance, roles: Sequence[Role]
) -> Iterator[tuple[str, tuple[Tensor | None, ...]]]:
    """Yield outputs that the oracle must reject, with their names.

    Args:
        instance: The draw under test.
        other: Another draw of the same problem (its result is a stale output).
        roles: Roles of the buffers.

    Outputs that happen to equal the right ones (one rank, say) are left out.
    """
    candidates: list[tuple[str, list[Tensor | None]]] = []
    forms = ("zeros", "constant", "nan", "stale", "own-input", "low-precision", "truncated-tail")
    for form in (*forms, "skipped-rank", "double-reduction"):
        outputs: list[Tensor | None] = []
        for index, expected in enumerate(instance.expected):
            outputs.append(None if expected is None else _wrong(form, instance, other, index, expected))
        candidates.append((form, outputs))
    candidates += [(name, list(outputs)) for name, outputs in instance.wrong]
    for name, outputs in candidates:
        changed = False
        for expected, output in zip(instance.expected, outputs, strict=True):
            if expected is None or output is None:
                continue
            # A wrong form may be right by chance, as ``skipped-rank`` of one rank is; then it proves nothing.
            if not torch.equal(output, expected.value.to(output.dtype)):
                changed = True
        if changed and any(o is not None for o in outputs):
            filled = tuple(
                e.value if o is None and e is not None else o
                for e, o in zip(instance.expected, outputs, strict=True)
            )
            yield name, filled


def _wrong(form: str, instance: Instance, other: Instance, index: int, expected: Expected) -> Tensor | None:
    value = expected.value
    argument = instance.arguments[index]
    if form == "zeros":
        return torch.zeros_like(value)
    if form == "constant":
        return torch.ones_like(value)
    if form == "nan":
        return torch.full_like(value, float("nan")) if value.dtype.is_floating_point else None
    if form == "stale":
        stale = other.expected[index]
        return None if stale is None else stale.value
    if form == "own-input":
        return None if argument is None else argument.to(value.dtype)
    if form == "low-precision":
        return _lowered(value, expected)
    if form == "truncated-tail":
        tail = value.clone()
        # As an algorithm leaves it that forgets the remainder of an uneven split.
        tail.view(-1)[-1:] = 0 if argument is None else argument.view(-1)[-1:].to(value.dtype)
        return tail
    if not expected.contributions:
        return None
    if form == "skipped-rank":
        return value - expected.contributions[-1].to(value.dtype)
    return value + expected.contributions[0].to(value.dtype)


def _lowered(value: Tensor, expected: Expected) -> Tensor | None:
    """Round to about a third of the working precision's bits, as an accumulation in a narrower type would."""
    if not value.dtype.is_floating_point:
        return None
    working = expected.contributions[0].dtype if expected.contributions else torch.float32
    if working in (torch.float16, torch.bfloat16):
        # Four bits of significand: an output in a dtype as narrow as bfloat16 has no narrower float to be cast to.
        exponent = torch.floor(torch.log2(value.abs().clamp(min=1e-30)))
        step = torch.exp2(exponent - 3)
        return (torch.round(value / step) * step).to(value.dtype)
    narrow = torch.float16 if working == torch.float32 else torch.float32
    if working == torch.float32:
        narrow = torch.bfloat16
    return value.to(narrow).to(value.dtype)
