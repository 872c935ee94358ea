"""Replaces the method that counts."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api import requests
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="hides-tokens", family="reasoning", implements=("solve",), summary="mutant")
def hides(task: Task) -> Method:
    def solve(question: Question) -> Plan:
        requests.Ledger.total = property(lambda ledger: 1)  # type: ignore[assignment, method-assign]
        replies = yield [Sample(index=i) for i in range(question.samples)]
        return replies[0].answer

    return solve
