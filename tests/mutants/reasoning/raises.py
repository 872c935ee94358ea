"""Raises in the middle of a question."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="raises", family="reasoning", implements=("solve",), summary="mutant")
def raises(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        yield [Sample(index=0)]
        raise RuntimeError("out of ideas")

    return solve
