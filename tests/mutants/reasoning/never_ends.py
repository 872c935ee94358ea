"""Asks for nothing, for ever."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Task


@technique(name="never-ends", family="reasoning", implements=("solve",), summary="mutant")
def never(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        while True:
            yield []

    return solve
