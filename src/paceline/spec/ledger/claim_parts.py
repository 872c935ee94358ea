"""Parts of a claim in a suite: what the paper says, the arm without the mechanism, and why it selects points."""

from __future__ import annotations

from pydantic import Field, model_validator

from paceline.spec.files.models import FileModel


class Against(FileModel):
    """Whom the paper beats, and which arm of the suite that is."""

    paper: str = Field(min_length=1, description="The paper's own baseline, in few words.")
    arm: str | None = Field(
        None,
        min_length=1,
        description="Label of the technique that is that baseline; none is where it is left out.",
    )
    because: str = Field(
        "", description="Where another arm stands in its place: why that one is no easier to beat."
    )


class Said(FileModel):
    """A number as it stands in the paper, where, against whom, and at what scale it was measured."""

    number: str = Field(min_length=1, description="The number in the paper's own unit.")
    place: str = Field(min_length=1, description="Section, table or abstract.")
    scale: str = Field("", description="Models, devices and data of the paper's measurement.")
    against: Against | None = Field(
        None,
        description="The paper's own opponent; a claim that compares two sides has one. Held against another arm, and "
        "without a reason, it is a conformance.",
    )


class NullArm(FileModel):
    """An arm without the mechanism, in the place of one of a claim's sides."""

    technique: str | None = Field(None, description="Label in the place of the claim's technique.")
    versus: str | None = Field(None, description="Label in the place of the other side.")

    @model_validator(mode="after")
    def _one_side(self) -> NullArm:
        if (self.technique is None) == (self.versus is None):
            raise ValueError("a null arm stands in the place of one side: 'technique' or 'versus'")
        return self


class PointsReason(FileModel):
    """Why a claim is about some points of its suite, and not about all; one key."""

    paper: str | None = Field(
        None, min_length=1, description="The paper states it of such points: what it says, and where."
    )
    premise: str | None = Field(
        None,
        min_length=1,
        description="At the others there is nothing of what the claim speaks of: what is lacking.",
    )
    expectation: str | None = Field(
        None,
        min_length=1,
        description="The expected number follows from what the point is: how, and what stands for the others.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> PointsReason:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of: {', '.join(type(self).model_fields)}; found {len(given)}")
        return self
