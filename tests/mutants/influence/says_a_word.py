"""Wants something that is no request."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.influence import Given, Run


@technique(
    name="says-a-word",
    family="training",
    implements=("influence",),
    summary="wants something that is no request",
)
class SaysAWord:
    """Speaks another language."""

    def run(self, given: Given) -> Run:
        """Want a word."""
        yield "everything"  # type: ignore[misc]  # what it is refused for
