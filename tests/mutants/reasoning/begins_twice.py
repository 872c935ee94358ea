"""Draws one trace as often as it likes."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="begins-twice", family="reasoning", implements=("solve",), summary="mutant")
def twice(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        yield [Sample(index=0)]
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    return solve
