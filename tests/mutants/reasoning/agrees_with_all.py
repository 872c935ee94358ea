"""Known wrong: answers by a text that says it equals every other one."""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


class Agreeable(str):
    """Equals every truth."""

    def __eq__(self, other: object) -> bool:
        """Agree."""
        return True

    __hash__ = str.__hash__


@technique(name="agrees-with-all", family="reasoning", implements=("solve",), summary="known wrong")
def agrees_with_all(task: Task) -> Method:
    """Return the method."""

    def solve(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return None if reply.answer is None else Agreeable(reply.answer)

    return solve
