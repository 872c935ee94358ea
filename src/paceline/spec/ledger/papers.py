"""The claims ledger: every paper in ``baselines/papers.yaml``, whether measured, measurable, or outside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.files.kinds import refuse_other_kinds
from paceline.spec.files.models import FileModel
from paceline.spec.files.yaml_file import load
from paceline.spec.ledger.premises import SettledBy

LEFT_UNDONE = (" yet", "no claim", "no run", "not measured", "not counted", "alone is measured")
"""Words of a reason that say that nobody did it, and not that it cannot be done."""
DONE = ("conforms", "simulated")
"""Words of a reason that say what was done, and not what is lacking."""


class Headline(FileModel):
    """One thing that a paper's abstract or main table says, and what tests it here."""

    says: str = Field(
        min_length=1, description="What the paper says, with its number and unit, in few words."
    )
    place: str = Field("abstract", description="Where it says so.")
    claims: tuple[str, ...] = Field((), description="Ids of the claims of suites that test it.")
    form: str = Field("", description="Where they test another form of it: why that says the same.")
    untestable: str = Field("", description="Why nothing can test it here: what is lacking.")
    untested: str = Field("", description="What could test it here, where nothing does yet.")
    settled_by: SettledBy | None = Field(
        None, description="What would: gpu, parameters (a larger model), time or setting."
    )
    test: str = Field("", description="Which machine, data or command that needs.")

    @model_validator(mode="after")
    def _tested_or_not(self) -> Headline:
        if sum(map(bool, (self.claims, self.untestable, self.untested))) != 1:
            raise ValueError(
                "a headline has one of: 'claims' that test it, 'untestable', why nothing can here, and 'untested', "
                "what could and does not yet"
            )
        if any(words in self.untestable for words in LEFT_UNDONE):
            raise ValueError("what nobody has measured yet is 'untested', and not 'untestable'")
        if any(words in self.untestable for words in DONE):
            raise ValueError(
                "an untestable headline says what is lacking, and not what was found of something else"
            )
        if self.untestable and self.settled_by is None:
            raise ValueError("an untestable headline says what would settle it: 'settled_by'")
        if self.untestable and self.settled_by == "time":
            raise ValueError("what time alone would settle is 'untested', and not 'untestable'")
        if self.untestable and self.settled_by == "setting" and not self.test:
            raise ValueError("another setting: 'test' says which machine, data or program is lacking here")
        if not self.untestable and (self.settled_by or self.test):
            raise ValueError("'settled_by' and 'test' are about an untestable headline")
        if self.form and not self.claims:
            raise ValueError("'form' is about the claims of a headline")
        return self


class Paper(FileModel):
    """One row of the ledger."""

    slug: str = Field(description="Stable short name used by suites and techniques.")
    title: str = Field(description="Title of the paper.")
    family: Literal["collectives", "kernels", "training", "serving", "reasoning", "outside"]
    group: str = Field(description="Topic inside the family.")
    tier: Literal[1, 2, 3, "outside"] = Field(description="1: built first … 3: later; outside: never.")
    method: str = Field(description="What the paper does.")
    claim: str = Field(description="Its headline figures, with their scope.")
    testable_claim: str = Field(description="What can be measured here; 'none: …' names what is lacking.")
    baseline: str = Field("", description="What the paper compares against.")
    needs: tuple[str, ...] = Field((), description="Least resources for the testable claim.")
    repo: str | None = Field(None, description="Code named in the abstract.")
    outside_reason: str | None = Field(None, description="Why the paper lies outside the five families.")
    headlines: tuple[Headline, ...] = Field(
        (), description="Its sheet: all that abstract and main table say, each tested or not."
    )


@cache
def _load(path: str, modified_ns: int) -> Mapping[str, Paper]:
    located = load(Path(path))
    refuse_other_kinds(located, "slug")
    try:
        papers = TypeAdapter(list[Paper]).validate_python(located.data)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(first["msg"], where=located.where(tuple(first["loc"]))) from None
    by_slug: dict[str, Paper] = {}
    for i, paper in enumerate(papers):
        if paper.slug in by_slug:
            raise UserError(f"the slug '{paper.slug}' appears twice", where=located.where((i, "slug")))
        if paper.family == "outside" and not paper.outside_reason:
            raise UserError(f"'{paper.slug}' lies outside but gives no reason", where=located.where((i,)))
        by_slug[paper.slug] = paper
    return by_slug


def load_papers(path: Path | None = None) -> Mapping[str, Paper]:
    """Return all papers by slug, in the file's order.

    Raises:
        UserError: The ledger is missing, malformed, or names a paper twice.
    """
    file = path or content.ledger_file()
    modified_ns = file.stat().st_mtime_ns if file.exists() else 0
    return _load(str(file), modified_ns)
