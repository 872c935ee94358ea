"""Answers without having read it anywhere."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="knows-the-answer", family="reasoning", implements=("solve",), summary="mutant")
def knows(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        yield [Sample(index=0, tokens=1)]
        return "7"

    return solve
