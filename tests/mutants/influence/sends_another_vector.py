"""Asks for a product with a vector of another length."""

from __future__ import annotations

import numpy as np

from paceline import technique
from paceline.families.training.api.influence import Given, HessianProduct, Run


@technique(
    name="sends-another-vector",
    family="training",
    implements=("influence",),
    summary="asks for a product with a vector of another length",
)
class SendsAnotherVector:
    """Mixes up sizes."""

    def run(self, given: Given) -> Run:
        """Ask with one number."""
        yield HessianProduct(0, given.steps[0], np.ones(1))
