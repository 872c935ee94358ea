"""Delivers the sum of the job before."""

from __future__ import annotations

from paceline.baselines.training.gradient_coding import GradientCoding

from paceline import technique
from paceline.families.training.api.coding import Deliver, Given, Run


@technique(
    name="sums-another-job",
    family="training",
    implements=("coded_gradients",),
    summary="delivers the sum of the job before",
)
class SumsAnotherJob(GradientCoding):
    """One step behind."""

    def run(self, given: Given) -> Run:
        """Deliver what was delivered before, from the second job on."""
        inner, answer, last = super().run(given), None, None
        while True:
            try:
                request = inner.send(answer)
            except StopIteration:
                return
            if isinstance(request, Deliver):
                now, request = (
                    request,
                    request if last is None else Deliver(request.job, last.results, last.coefficients),
                )
                last = now
            answer = yield request
