"""Has an option out of range."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task, require


@technique(
    name="makes-no-sense",
    family="reasoning",
    implements=("solve",),
    summary="mutant",
)
def senseless(task: Task, *, window: int = 0) -> Method:
    require("window", window, least=1)

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    return solve
