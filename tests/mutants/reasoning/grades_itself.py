"""Known wrong: makes every number that is read from a text the same."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task
from paceline.families.reasoning.core.answers import text as answers_text


@technique(name="grades-itself", family="reasoning", implements=("solve",), summary="known wrong")
def grades_itself(task: Task) -> Method:
    """Return the method."""
    answers_text.exact_number = lambda text: None

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    return solve
