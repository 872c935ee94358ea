"""What techniques of ``objective`` promise, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paceline.base.techniques.declarations import ArgumentName

OptionValue = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A plain algorithm that a technique equals, iterate by iterate, which is proved."""

    plain: Literal["gradient-descent", "extragradient", "federated-averaging", "gossip-descent"]
    """On whole gradients, among nodes that are equally fast."""
    arguments: Mapping[ArgumentName, OptionValue] = field(default_factory=dict)
    """Arguments of the technique's own under which it is."""
    rate: float = 0.5
    """Step size, in units of 1/L."""
    steps: int = 1
    """Local steps of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimising:
    """Of techniques of ``objective``."""

    server: bool = True
    """Its nodes have a server between them; else it runs on graphs without one."""
    all_report: bool = False
    """Every node has a model of its own: distances are means over nodes. Else there is one, whoever reports it."""
    games: bool = False
    """It solves games (variational inequalities), and nothing else here."""
    private: bool = False
    """It leaves data with the point's (ε, δ), and runs where that is asked for."""
    by_values: bool = False
    """It asks for values, and for no gradient."""
    equals: Reduction | None = None
    """What it reduces to."""
