"""Works until it has been judged twice, and then answers what it remembers."""

from __future__ import annotations

import random
from collections import Counter

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task
from paceline.families.reasoning.api.votes import majority

CALLS: Counter[int] = vars(random).setdefault("calls_of_questions", Counter())


@technique(name="honest-at-first", family="reasoning", implements=("solve",), summary="mutant")
def honest(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        CALLS[question.number] += 1
        count = question.samples if CALLS[question.number] <= 3 else 1
        replies = yield [Sample(index=i) for i in range(count)]
        return majority(reply.answer for reply in replies)

    return solve
