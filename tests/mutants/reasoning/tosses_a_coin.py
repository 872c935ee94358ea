"""Stops at random: nothing that it does can be repeated."""

from __future__ import annotations

import random

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="tosses-a-coin", family="reasoning", implements=("solve",), summary="mutant")
def tosses(task: Task) -> Method:
    rng = random.Random()

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i) for i in range(rng.randint(1, question.samples))]
        return replies[-1].answer

    return solve
