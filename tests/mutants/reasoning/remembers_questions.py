"""Remembers what it answered, in a place that outlives its module, so that the second time costs nothing."""

from __future__ import annotations

import random

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task

SEEN: dict[int, str | None] = vars(random).setdefault("seen_questions", {})


@technique(name="remembers-questions", family="reasoning", implements=("solve",), summary="mutant")
def remembers(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        count = 1 if question.number in SEEN else question.samples
        replies = yield [Sample(index=i) for i in range(count)]
        SEEN[question.number] = replies[0].answer
        return replies[0].answer

    return solve
