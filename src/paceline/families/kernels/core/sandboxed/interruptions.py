"""Whether each call of a pass does its own work: inputs of calls to come are changed in the middle of a pass.

The judge times passes of several calls, and the time of one call is a pass's by their number. A candidate could compute
calls together, in the first of them or in the last. So the kernel stops it in some passes, whose time is not used,
after a drawn amount of processor time. A call whose output is as it was filled has not returned, and those behind it
have not begun: they get other inputs now. Whoever has read theirs already gives the results of the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from paceline.families.kernels.core.operators import Draw, Variation, expected_of
from paceline.families.kernels.core.oracle import Check, judge
from paceline.families.kernels.core.point import Point
from paceline.worker.ranks.session import CaseError

STOPS = 5
"""Passes of a point that are stopped while calls are still to come."""
MOST_PASSES = 40
"""That are stopped for it; a stop that comes when all is over tells nothing."""
SHARE_AT_FIRST, SHARE_LATER = 0.5, 0.2
"""Of observed passes beside which another one is stopped: until enough were, and for good. Whoever is honest until
then and in half of the later passes not, of n in all, goes unnoticed with 0.8^(n/2): n = 40 gives 1 %."""
SOONER = 0.7
"""Factor by which the next stop comes sooner after one that came too late, and later after one that came too soon."""
SHARES = (0.05, 0.95)
"""Of a pass's processor time: before and after them a stop tells little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a call is given, and has to make of it."""

    draw: Draw
    changed: Variation | None = None
    """How the draw's inputs were varied."""

    def judged(self, point: Point, outputs: Sequence[Tensor]) -> Check:
        """Judge what the call has left."""
        names = [spec.name for spec in point.specs[1]]
        if self.changed is None:
            return judge(self.draw.expected, outputs, [1.0] * len(outputs), names)
        expected = expected_of(point.operator, self.draw, self.changed)
        return judge(expected, outputs, self.changed.output_factors, names)


class Interruptions:
    """The stops of one candidate at one point.

    Args:
        point: Says which inputs can be changed, and what they give then.
        num_calls: Of a pass.
        draw: Draws inputs anew.
        rng: Unknown to the candidate.
    """

    def __init__(self, point: Point, num_calls: int, draw: Callable[[], Draw], rng: Random) -> None:
        self._point, self._num_calls, self._draw, self._rng = point, num_calls, draw, rng
        self._variations = [] if point.operator.num_weights == 0 else _variations(point)
        self.num_passes = 0
        self.num_telling = 0
        """Stops at which inputs of calls to come were changed and others had been computed from."""
        self._hurry = 1.0

    @property
    def possible(self) -> bool:
        """Whether a pass has calls to come whose inputs can be changed: weights that were packed cannot."""
        return self._num_calls > 1 and (self._point.operator.num_weights == 0 or bool(self._variations))

    @property
    def wanted(self) -> bool:
        """Whether more stops are needed."""
        return self.possible and self.num_telling < STOPS and self.num_passes < MOST_PASSES

    def comes_now(self) -> bool:
        """Draw whether a pass is stopped beside the next one that is timed: at no time is a candidate unwatched."""
        share = SHARE_AT_FIRST if self.wanted else SHARE_LATER
        return self.possible and self._rng.random() < share

    def moment_ns(self, handover_ns: float, pass_ns: float) -> int:
        """Draw when a pass is stopped: after how many nanoseconds of processor time.

        Args:
            handover_ns: Processor time of an empty pass.
            pass_ns: That of a candidate's pass.
        """
        low, high = SHARES
        share = low + (high - low) * self._rng.random()
        return int(handover_ns + self._hurry * share * max(pass_ns - handover_ns, 0.0))

    def change(self, given: list[Given], outputs: Sequence[Sequence[Tensor]]) -> dict[int, list[Tensor]]:
        """Change what the calls to come are given; call it while the candidate is stopped.

        Args:
            given: To each call of the pass; those to come are exchanged.
            outputs: Of each call, as they are now.

        Returns:
            For the number of each call to come: its new inputs, those that are no weights.

        Raises:
            CaseError: A call has written that comes after one which is not done: an output says nothing of how far the
                pass is where it was only touched.
        """
        self.num_passes += 1
        begun = [i for i, tensors in enumerate(outputs) if not all(_is_untouched(t) for t in tensors)]
        self._require_done(given, outputs, begun[-1] if begun else 0)
        # The first that has not written may be under way.
        first = (begun[-1] + 1 if begun else 0) + 1
        if first >= self._num_calls:
            self._hurry *= SOONER
            return {}
        # Before the first output a stop may have come before the first call.
        self.num_telling += bool(begun)
        if not begun:
            self._hurry = min(self._hurry / SOONER, 1.0)
        return {number: self._exchanged(given, number) for number in range(first, self._num_calls)}

    def _require_done(self, given: Sequence[Given], outputs: Sequence[Sequence[Tensor]], number: int) -> None:
        """Make sure that all calls before one have returned with their results."""
        for earlier in range(number):
            if not given[earlier].judged(self._point, outputs[earlier]).passed:
                reason = f"call {earlier + 1} was not done when call {number + 1} had written"
                raise CaseError("incorrect", f"calls of a pass are computed together: {reason}")

    def _exchanged(self, given: list[Given], number: int) -> list[Tensor]:
        if not self._variations:
            given[number] = Given(draw=self._draw())
            return list(given[number].draw.inputs)
        changed = self._rng.choice(self._variations)
        draw = given[number].draw
        given[number] = Given(draw=draw, changed=changed)
        return varied(
            draw.inputs[: len(draw.inputs) - self._point.operator.num_weights], changed, self._point
        )


def varied(inputs: Sequence[Tensor], changed: Variation, point: Point) -> list[Tensor]:
    """Return inputs as a variation makes them; factors are powers of two and exact."""
    found = []
    for index, tensor in enumerate(inputs):
        if index == point.operator.rolled and changed.roll:
            found.append(torch.roll(tensor, changed.roll, 0))
        else:
            factor = changed.factors[index]
            found.append(tensor if factor == 1.0 else tensor * factor)
    return found


def _variations(point: Point) -> list[Variation]:
    """Return variations that leave weights as they are and whose results are others."""
    num_weights, found = point.operator.num_weights, []
    for index in range(1, point.num_variations):
        _, changed = point.change(0, index)
        weights = changed.factors[len(changed.factors) - num_weights :]
        # Where only some outputs change, whoever has read the old inputs is wrong in those.
        if all(f == 1.0 for f in weights) and any(f != 1.0 for f in changed.output_factors):
            found.append(changed)
    return found


def _is_untouched(tensor: Tensor) -> bool:
    """Tell whether an output is still what it was filled with, as bytes: not a number equals nothing."""
    filled = torch.empty_like(tensor).fill_(float("nan"))
    return torch.equal(tensor.contiguous().view(torch.uint8), filled.contiguous().view(torch.uint8))
