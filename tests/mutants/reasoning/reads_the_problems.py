"""Imports what holds the answers."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task
from paceline.families.reasoning.core.problems.embedded import draw


@technique(name="reads-the-problems", family="reasoning", implements=("solve",), summary="mutant")
def reads(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return draw(0, 1, levels=(1,))[0].answer or reply.answer

    return solve
