"""Early-stopping self-consistency: small windows of traces, until one window agrees with itself.

Li, Yuan, Feng, Pan, Wang, Sun, Wang and Li, 2024, "Escape Sky-high Cost: Early-stopping Self-Consistency for
Multi-step Reasoning" (arXiv:2401.10480).

Algorithm: sample a window of w traces at once; when all of them give one answer, stop and return it; else sample the
next window. When the traces are used up, the most frequent answer of all of them is returned.
Cost: a multiple of w traces; the sum over windows of the longest trace on the critical path; the cache of one window.
Differences: a window with an answer that cannot be read does not agree.
Limits: a window that agrees on a wrong answer ends the question; w balances tokens and latency.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task, require
from paceline.families.reasoning.api.votes import majority


@technique(
    name="esc",
    family="reasoning",
    implements=("solve",),
    summary="windows of traces until one agrees with itself",
)
def esc(task: Task, *, window: int = 4) -> Method:
    """Return the method.

    Args:
        task: The point.
        window: Traces that are drawn at once.

    Raises:
        OptionError: There are none.
    """
    require("window", window, least=1)

    def solve(question: Question) -> Plan:
        answers: list[str | None] = []
        while len(answers) < question.samples:
            last = min(len(answers) + window, question.samples)
            replies = yield [Sample(index=i) for i in range(len(answers), last)]
            found = [reply.answer for reply in replies]
            answers += found
            # A window of one would always agree with itself; the last window may be cut to one.
            if found[0] is not None and len(set(found)) == 1 and len(found) > 1:
                return found[0]
        return majority(answers)

    return solve
