"""Known wrong: takes the judge itself, whose readings nobody would count."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task
from paceline.families.reasoning.core.pairs import load_judge


@technique(name="compares-by-itself", family="reasoning", implements=("solve",), summary="known wrong")
def compares_by_itself(task: Task) -> Method:
    """Return the method."""
    judge = load_judge()

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        judge.probability((), reply.tokens, reply.tokens)
        return reply.answer

    return solve
