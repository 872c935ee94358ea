"""One trace that always takes the likeliest token: what a model answers when nothing is spent on being surer.

Common property; the baseline of every method that samples.

Algorithm: decode the question at temperature 0; its answer is the answer.
Cost: one trace's tokens, all of them on the critical path; the cache of one trace.
Limits: it cannot be better than the model's likeliest trace, and more tokens cannot help it.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(
    name="greedy", family="reasoning", implements=("solve",), summary="one trace, always the likeliest token"
)
def greedy(task: Task) -> Method:
    """Return the method."""

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0, greedy=True)]
        return reply.answer

    return solve
