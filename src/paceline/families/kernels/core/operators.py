"""Oracles of operations: tensors, float64 results with bounds, and how inputs change from call to call.

Every timed call gets inputs that no call saw before, without a new draw: scaling an input of a linear operation by a
power of two scales the result exactly, so a handful of draws gives thousands of distinct inputs whose results are
known. A kernel that remembers results by address or by content meets nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.base.draws import stream_seed

Params = Mapping[str, Any]

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
# Of float16, whose exponent has five bits: products of scaled inputs must stay in its range.
MAX_EXPONENT = {torch.float16: 3}
DEFAULT_EXPONENT = 8
LEAST_FLOAT16 = 2.0**-11
"""Smaller inputs become zero, so that scaled ones keep all their bits."""
FLOAT16_FLOOR = 2.0**-18
"""Outputs that were scaled down may have been rounded as subnormal numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of an operation."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Size of the tensor in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The right content of one output."""

    value: Tensor
    """In float64."""
    bound: Tensor | float = 0.0
    """Largest allowed absolute error of each element; 0 means equal to the value rounded to the output's dtype."""
    max_relative_l2: float = float("inf")
    """Largest allowed ‖error‖ / ‖value‖."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Inputs and expected outputs of one draw."""

    inputs: tuple[Tensor, ...]
    expected: tuple[Expected, ...]
    facts: Mapping[str, Tensor] = field(default_factory=dict)
    """What the oracle keeps to form the results of varied inputs, and known-wrong ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Inputs that may be multiplied together, and what that does to the outputs.

    With a factor f = ±2^e, input i is multiplied by f^p for each (i, p) in ``inputs`` (p is 1 or −1, and the sign
    belongs to all of them), output j by f for each j in ``outputs``.
    """

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[int, ...] = ()
    exponents: bool = True
    """False when only the sign may change."""
    signed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What is done to a draw's inputs for one call; the same in the process that computes and the one that judges."""

    factors: tuple[float, ...]
    """For each input."""
    output_factors: tuple[float, ...]
    roll: int = 0
    """Rows by which the rolled input is shifted."""


class Operator(Protocol):
    """The oracle of one operation."""

    @property
    def name(self) -> str:
        """The operation's name in suites."""
        ...

    @property
    def oracle(self) -> str:
        """By what results are judged, in words that records keep."""
        ...

    @property
    def scalable(self) -> bool:
        """Whether inputs may be of other magnitudes and sizes than a case's: not where a file draws them."""
        ...

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """Ways to vary the inputs; their combinations multiply."""
        ...

    @property
    def num_weights(self) -> int:
        """Inputs at the end of the list that a technique may pack ahead of time."""
        ...

    @property
    def rolled(self) -> int | None:
        """Index of the input that is shifted along its first axis, or None."""
        ...

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the specifications of inputs and outputs."""
        ...

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw inputs and compute their results in float64, with bounds that follow from a plain computation."""
        ...

    def rolled_expected(self, draw: Draw, roll: int) -> tuple[Expected, ...]:
        """Return the results after the rolled input was shifted; called only where ``rolled`` is set."""
        ...

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield known-wrong outputs that only this operation can form, by name."""
        ...

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return small points of odd sizes at which a technique must be right too."""
        ...


class BaseOperator:
    """What most oracles share."""

    name = ""
    oracle = "float64, with a bound from a plain computation's own error"
    scalable = True
    scalings: tuple[Scaling, ...] = ()
    num_weights = 0
    rolled: int | None = None

    def rolled_expected(self, draw: Draw, roll: int) -> tuple[Expected, ...]:
        """Operations without a rolled input are never asked."""
        raise NotImplementedError(f"{self.name} rolls no input by {roll}: {len(draw.inputs)}")

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield nothing beyond the common mistakes."""
        yield from ()


def num_variations(operator: Operator, params: Params, dtype: torch.dtype) -> int:
    """Return how many different inputs one draw gives."""
    count = 1
    for scaling in operator.scalings:
        count *= _choices(scaling, dtype)
    if operator.rolled is not None:
        specs, _ = operator.tensors(params, dtype)
        # A roll by each number of rows is another input with a known result.
        count *= specs[operator.rolled].shape[0]
    return count


def _choices(scaling: Scaling, dtype: torch.dtype) -> int:
    exponents = 2 * MAX_EXPONENT.get(dtype, DEFAULT_EXPONENT) + 1 if scaling.exponents else 1
    return exponents * (2 if scaling.signed else 1)


def variation(operator: Operator, params: Params, dtype: torch.dtype, index: int) -> Variation:
    """Return the variation with a number below ``num_variations``; number 0 changes nothing."""
    inputs, outputs = operator.tensors(params, dtype)
    factors, output_factors = [1.0] * len(inputs), [1.0] * len(outputs)
    for scaling in operator.scalings:
        # A number of mixed radix: each way to vary takes its digit, and what remains is the roll.
        index, digit = divmod(index, _choices(scaling, dtype))
        sign = 1.0
        if scaling.signed:
            digit, negative = divmod(digit, 2)
            sign = -1.0 if negative else 1.0
        # 0, 1, −1, 2, −2, …: digit 0 changes nothing, and small changes come first.
        exponent = (digit + 1) // 2 * (1 if digit % 2 else -1)
        for number, power in scaling.inputs:
            factors[number] *= sign * 2.0 ** (power * exponent)
        for number in scaling.outputs:
            output_factors[number] *= sign * 2.0**exponent
    return Variation(factors=tuple(factors), output_factors=tuple(output_factors), roll=index)


def expected_of(operator: Operator, draw: Draw, changed: Variation) -> tuple[Expected, ...]:
    """Return what a call on varied inputs must give, before output factors: those are divided out of the output."""
    return operator.rolled_expected(draw, changed.roll) if changed.roll else draw.expected


def within(
    value: Tensor,
    naive: Tensor,
    dtype: torch.dtype,
    *,
    ulps: float = 2.0,
    times: float = 8.0,
    extra: Tensor | float = 0.0,
) -> Expected:
    """Return an expected output whose tolerance follows from the error of a plain computation.

    Args:
        value: The result in float64.
        naive: The same by a plain computation as precise as the operation asks for (float32 accumulation for narrow
            dtypes), not yet rounded to the output's dtype.
        dtype: The output's dtype: each element may be off by ``ulps`` units of roundoff for being rounded to it.
        ulps: Roundings of each element.
        times: An implementation that adds in another order may err this much more than the largest naive error.
        extra: Further error allowed to each element, such as that of a rounded intermediate.
    """
    wide = value.to(torch.float64)
    error = (naive.to(torch.float64) - wide).abs()
    worst = float(error.max()) if error.numel() else 0.0
    largest = float(wide.abs().max()) if wide.numel() else 0.0
    unit = UNIT_ROUNDOFF[dtype]
    # Of a plain float64 computation the error cannot be seen: the reference rounds as it does.
    floor = (64 if dtype == torch.float64 else 4) * UNIT_ROUNDOFF[min_precise(dtype)] * largest
    if dtype == torch.float16:
        floor += FLOAT16_FLOOR
    # Rounding to the dtype is relative to each element; what the sum lost before is not, so the worst of it counts.
    bound = wide.abs() * (ulps * unit) + (times * worst + floor) + extra
    norm = float(wide.norm())
    extra_norm = float(extra.norm()) if isinstance(extra, Tensor) else extra * wide.numel() ** 0.5
    # The same tolerances as a norm: a result that is everywhere at the edge of its bound does not pass.
    relative = (times * float(error.norm()) + extra_norm) / norm if norm else 0.0
    relative += ulps * unit + floor / max(largest, 1e-300)
    return Expected(value=wide, bound=bound, max_relative_l2=relative)


def min_precise(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which an operation on ``dtype`` accumulates."""
    return dtype if dtype == torch.float64 else torch.float32


def cancellation(logits_TV: Tensor) -> float:
    """Return the error that a loss keeps from the logits whose difference it is, however small it is itself."""
    return 4 * UNIT_ROUNDOFF[logits_TV.dtype] * float(logits_TV.abs().max())


def exactly(value: Tensor) -> Expected:
    """Return an expected output that admits no error."""
    return Expected(value=value.to(torch.float64))


def gaussian(
    shape: Sequence[int], dtype: torch.dtype, *, seed: int, stream: int, magnitude: float, device: str
) -> Tensor:
    """Draw normal numbers of the given magnitude, rounded to a dtype; each stream of a seed is independent."""
    generator = torch.Generator(device="cpu").manual_seed(stream_seed(seed, stream))
    # Float32 on the CPU for every dtype and device: all of them are given the same numbers.
    drawn = torch.randn(tuple(shape), generator=generator, dtype=torch.float32)
    drawn.mul_(magnitude)
    if dtype == torch.float16:
        drawn[drawn.abs() < LEAST_FLOAT16] = 0.0
    return drawn.to(dtype).to(device)


def integers(count: int, high: int, *, seed: int, stream: int, device: str) -> Tensor:
    """Draw integers below ``high``."""
    generator = torch.Generator(device="cpu").manual_seed(stream_seed(seed, stream))
    return torch.randint(high, (count,), generator=generator, dtype=torch.int64).to(device)


def known_wrong(
    operator: Operator,
    draw: Draw,
    other: Draw,
    outputs: Sequence[TensorSpec],
    *,
    without: Container[str] = (),
) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield results that the oracle must reject, with their names; those that happen to be right are left out.

    Args:
        operator: Whose results they are.
        draw: The draw under test.
        other: Another draw of the same point: its result is a stale one.
        outputs: Specifications of the outputs.
        without: Names of those that are not asked for; looked at when a result's turn comes.
    """
    right = tuple(e.value for e in draw.expected)
    wanted = [v.to(s.dtype) for v, s in zip(right, outputs, strict=True)]
    for name, candidate in _wrong_forms(operator, draw, other, outputs, without):
        # In the outputs' dtype: what rounds to the right result is no mistake that anybody could see.
        rounded = [c.to(s.dtype) for c, s in zip(candidate, outputs, strict=True)]
        if any(not torch.equal(c, w) for c, w in zip(rounded, wanted, strict=True)):
            yield name, tuple(rounded)


def _wrong_forms(
    operator: Operator, draw: Draw, other: Draw, outputs: Sequence[TensorSpec], without: Container[str]
) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    for name, form in MISTAKES.items():
        if name not in without:
            yield name, tuple(form(e.value, s.dtype) for e, s in zip(draw.expected, outputs, strict=True))
    if "stale" not in without:
        yield "stale", tuple(e.value for e in other.expected)
    yield from ((name, form) for name, form in operator.wrong(draw) if name not in without)


def _truncated(value: Tensor) -> Tensor:
    shorter = value.clone()
    shorter.view(-1)[-1:] = 0
    return shorter


def _without_small(value: Tensor) -> Tensor:
    """Replace elements below a fiftieth of the largest by zero: what an absolute tolerance would let pass."""
    return torch.where(value.abs() < value.abs().max() / 50, torch.zeros_like(value), value)


def _lowered(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to about half of a dtype's precision, as an accumulation in a narrower type would."""
    if dtype in (torch.float16, torch.bfloat16):
        # Five bits of significand, where float16 has eleven and bfloat16 eight.
        exponent = torch.floor(torch.log2(value.abs().clamp(min=1e-30)))
        step = torch.exp2(exponent - 4)
        return torch.round(value / step) * step
    return value.to(torch.float32 if dtype == torch.float64 else torch.bfloat16).to(value.dtype)


MISTAKES: Mapping[str, Callable[[Tensor, torch.dtype], Tensor]] = {
    "zeros": lambda value, _: torch.zeros_like(value),
    "constant": lambda value, _: torch.ones_like(value),
    "nan": lambda value, _: torch.full_like(value, float("nan")),
    "low-precision": _lowered,
    "truncated-tail": lambda value, _: _truncated(value),
    "small-values-dropped": lambda value, _: _without_small(value),
    "wrong-sign": lambda value, _: -value,
    "shifted": lambda value, _: value.reshape(-1).roll(1).reshape(value.shape),
}
"""What any output may be in place of the right one."""


def scaled(expected: Expected, factor: float) -> Expected:
    """Return the expectation multiplied by a power of two."""
    return replace(expected, value=expected.value * factor, bound=expected.bound * abs(factor))
