"""Wants something that is no request."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Given, Run


@technique(
    name="sends-objects",
    family="training",
    implements=("coded_gradients",),
    summary="wants something that is no request",
)
class SendsObjects(GradientCoding):
    """Speaks another language."""

    def run(self, given: Given) -> Run:
        """Want a word."""
        yield "all gradients"  # type: ignore[misc]  # what it is refused for
