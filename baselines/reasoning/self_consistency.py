"""Self-consistency: all traces at once, and the most frequent answer.

Wang, Wei, Schuurmans, Le, Chi, Narang, Chowdhery and Zhou, 2022, "Self-Consistency Improves Chain of Thought
Reasoning in Language Models", section 2.

Algorithm: sample n traces of the question; read each one's answer; return the answer that most of them give.
Cost: the tokens of n traces; the longest of them on the critical path; the cache of n traces behind one prompt.
Differences: answers that cannot be read do not vote; among equals the first trace's wins.
Limits: tokens do not depend on how hard the question is.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task, require
from paceline.families.reasoning.api.votes import majority


@technique(
    name="self-consistency",
    family="reasoning",
    implements=("solve",),
    summary="the most frequent answer of all traces",
)
def self_consistency(task: Task, *, traces: int | None = None) -> Method:
    """Return the method.

    Args:
        task: The point.
        traces: How many traces vote; None takes all that a question has.

    Raises:
        OptionError: A question does not have as many.
    """
    require("traces", task.samples if traces is None else traces, least=1, most=task.samples)

    def solve(question: Question) -> Plan:
        # One round: no trace waits for another, so the critical path is the longest of them.
        replies = yield [Sample(index=i) for i in range(question.samples if traces is None else traces)]
        return majority(reply.answer for reply in replies)

    return solve
