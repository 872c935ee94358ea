"""Parts of a claim in a suite: what the paper says, the arm without the mechanism, and why it selects points."""

from __future__ import annotations

from pydantic import Field, model_validator

from paceline.spec.files.models import FileModel


class Said(FileModel):
    """A number as it stands in the paper, where, and at what scale it was measured."""

    number: str = Field(min_length=1, description="The number in the paper's own unit.")
    place: str = Field(min_length=1, description="Section, table or abstract.")
    scale: str = Field("", description="Models, devices and data of the paper's measurement.")


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
