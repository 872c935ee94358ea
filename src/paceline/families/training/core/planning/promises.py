"""What techniques of training may promise and have to prove (``api.replica`` says how each is meant); free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paceline.base.techniques.declarations import ArgumentName, OptionName

Schedule = Literal["always", "rounds", "own-rounds", "pairs", "pairs-then-all", "never"]
OptionValue = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualsDdp:
    """Where a step is synchronous training's."""

    optimizer: Literal["adamw", "sgd"]
    """The inner optimiser under which it is."""
    arguments: Mapping[ArgumentName, OptionValue]
    """Arguments of the technique's own under which it is; some of them need not be options."""
    max_ranks: int | None = None
    """On more ranks it is not; None means that it is on any."""
    late: bool = False
    """What a step gave is shipped one step later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Of every operation that trains in the family's loop."""

    exact: bool = False
    """Every step equals one process that trains on the whole batch."""
    inexact_with: Mapping[OptionName, OptionValue] = field(default_factory=dict)
    """Values of options, other than by default, with which it is not exact, since they round."""
    replicas: Literal["identical", "apart"] = "apart"
    """What ranks ship: equal weights, or weights that may differ."""
    agree: Schedule | None = None
    """When ranks' own models hold the same weights; None: ``always`` where replicas are identical, else ``never``."""
    bitwise: bool = True
    """A run that is taken up from a checkpoint has the bits of one that was not interrupted."""
    equals_ddp: EqualsDdp | None = None
    """Where it equals synchronous training, which is proved."""
    unbiased_with: Mapping[ArgumentName, OptionValue] | None = None
    """Arguments under which the mean of many steps of plain SGD is synchronous training's, which is proved."""
    diagnoses: bool = False
    """``diagnosis`` returns figures of what ranks' gradients are like, which are proved."""

    @property
    def schedule(self) -> Schedule:
        """When ranks' models hold the same weights, said or by default."""
        # Identical replicas agree always unless something is said: a technique with rounds has to say so.
        return self.agree or ("always" if self.replicas == "identical" else "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(Training):
    """Of operations from whose group a rank may go."""

    elastic: bool = False
    """Ranks may leave and come back, by agreement between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slopes(Training):
    """Of fine-tuning."""

    slope_error: float = 0.0
    """Relative error that the code of a slope may cause; 1 at most counts, which leaves its sign."""
