"""Remembers what it answered, so that the second time costs nothing."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.requests import Method, Plan, Question, Sample, Task


@technique(name="remembers-questions", family="reasoning", implements=("solve",), summary="mutant")
def remembers(task: Task) -> Method:
    seen: dict[int, str | None] = {}

    def solve(question: Question) -> Plan:
        count = 1 if question.key in seen else question.samples
        replies = yield [Sample(index=i) for i in range(count)]
        seen[question.key] = replies[0].answer
        return replies[0].answer

    return solve
