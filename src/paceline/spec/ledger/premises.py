"""Premises of claims: what must hold in a run for its numbers to speak about what is claimed.

A premise is a number of the same run beside a bound. Where it is not met, nothing that was found decides the claim: it
is not testable here, or not run where two cores can meet the premise. ``paceline.analysis.claims.premises`` computes
them.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from paceline.base.families.family import Scalar
from paceline.spec.files.models import FileModel

SettledBy = Literal["gpu", "parameters", "time", "setting"]
"""What would meet a premise: an accelerator, a larger model, a longer run, or another link, text or implementation."""
KINDS = ("metric", "quantity", "parameter")
HERE = ("two cores", "nothing but two cores")
"""How ``machine`` begins where a machine of two cores meets the premise, with another workload or a longer run."""
MORE = re.compile(
    r"\bGPU|\bcore for each|\bcore or device each"
    r"|\b(?:three|four|eight|sixteen|[3-9]|[1-9]\d+) (?:cores|devices)\b"
)
"""What a machine has that two cores lack."""


class Source(FileModel):
    """A number of the run, at the claim's point: a metric, a quantity of its scale, or a parameter."""

    metric: str | None = Field(None, description="Name of a metric of the family.")
    quantity: str | None = Field(None, description="Name of a quantity of the family (table below).")
    parameter: str | None = Field(None, description="Name of a numeric parameter of the point.")
    technique: str | None = Field(None, description="Label; default: the claim's own technique.")
    where: dict[str, Scalar] = Field(
        default_factory=dict, description="Parameters in which its point differs from the claim's."
    )

    @property
    def named(self) -> tuple[str, str] | None:
        """Which kind of number it is, and its name; None where it names none, or several."""
        given = [(kind, name) for kind in KINDS if (name := getattr(self, kind)) is not None]
        return given[0] if len(given) == 1 else None

    @property
    def ambiguous(self) -> bool:
        """Whether it names several numbers."""
        return sum(getattr(self, kind) is not None for kind in KINDS) > 1


class Premise(FileModel):
    """What must hold in the run: a number, or a ratio of two, beside a bound; or an arm that reaches the claim's."""

    says: str = Field(min_length=1, description="The condition in words.")
    of: Source | None = Field(None, description="The number.")
    over: Source | None = Field(
        None, description="Divides it; what it leaves out, other than parameters, is as in `of`."
    )
    at_least: float | None = Field(None, description="The whole interval lies at this or above.")
    at_most: float | None = Field(None, description="The whole interval lies at this or below.")
    reached_by: str | None = Field(
        None,
        description="Label of an arm that no technique can beat, or that does nothing: what it does not reach of the "
        "claim's own expectation is out of reach here. It takes the place of the claim's technique.",
    )
    settled_by: SettledBy = Field(
        description="What would meet it: gpu, parameters (a larger model), time (a longer run) or setting."
    )
    command: str = Field("", description="The command that would test it.")
    machine: str = Field(
        "",
        description="What that command needs, and what is to be changed first; `two cores; …` where no more is needed, "
        "else a GPU, or more cores.",
    )

    @property
    def names_two_cores(self) -> bool:
        """Whether it says that a machine of two cores meets it."""
        return self.machine.startswith(HERE)

    @property
    def names_more(self) -> bool:
        """Whether it names what two cores lack: a GPU, or more cores."""
        return MORE.search(self.machine) is not None

    @property
    def within_reach(self) -> bool:
        """Whether a machine of two cores can meet it, by a longer run or with another workload."""
        return self.settled_by == "time" or self.names_two_cores

    @model_validator(mode="after")
    def _one_condition(self) -> Premise:
        if (self.of is None) == (self.reached_by is None):
            raise ValueError("a premise has either 'of', a number of the run, or 'reached_by', an arm")
        bounds = [b for b in (self.at_least, self.at_most) if b is not None]
        if self.of is None:
            if bounds or self.over is not None:
                raise ValueError("'reached_by' takes the claim's expectation: it has no bound and no 'over'")
        elif len(bounds) != 1:
            raise ValueError(f"'of' needs one bound, at_least or at_most; found {len(bounds)}")
        elif self.of.named is None:
            raise ValueError(f"'of' names one of: {', '.join(KINDS)}")
        elif self.over is not None and self.over.ambiguous:
            raise ValueError(f"'over' names at most one of: {', '.join(KINDS)}")
        return self
