"""Loads a model of its own through the package that it lies in."""

from __future__ import annotations

from paceline import technique
from paceline.families import reasoning
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="asks-by-another-name", family="reasoning", implements=("solve",), summary="mutant")
def asks(task: Task) -> Method:
    model = reasoning.core.reasoner.load("strong")

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return reply.answer if model else None

    return solve
