"""Loads a model of its own, whose tokens nobody counts."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task
from paceline.families.reasoning.core.reasoner import load


@technique(name="asks-its-own-model", family="reasoning", implements=("solve",), summary="mutant")
def asks(task: Task) -> Method:
    model = load("strong")

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return reply.answer if model else None

    return solve
