"""One trace of the partner: what the larger model does alone, at its full cost.

Common property; the baseline of methods that hand over between two models.

Algorithm: sample one trace of the point's partner; its answer is the answer.
Cost: the trace's tokens, each worth the partner's parameters over the model's; all of them are one chain.
Limits: none of its tokens is cheap.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(
    name="large-model-only",
    family="reasoning",
    implements=("solve",),
    summary="one trace, written by the larger model alone",
)
def large_model_only(task: Task) -> Method:
    """Return the method."""

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0, partner=True)]
        return reply.answer

    return solve
