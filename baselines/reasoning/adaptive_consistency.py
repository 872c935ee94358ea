"""Adaptive consistency: one trace after another, until the leading answer is unlikely to be overtaken.

Aggarwal, Madaan, Yang and Mausam, 2023, "Let's Sample Step by Step: Adaptive-Consistency for Efficient Reasoning and
Coding with LLMs" (arXiv:2305.11860), with the Beta stopping criterion.

Algorithm: sample a trace; with v1 votes for the leader and v2 for the runner-up, the leader's share among the two
follows Beta(v1 + 1, v2 + 1); stop when P(share > 1/2) is above a threshold, or when all traces are used.
Cost: as many traces as the question needs; each waits for the one before, so all tokens are on the critical path.
Differences: answers that cannot be read do not vote.
Limits: it saves tokens and pays in latency.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task, require
from paceline.families.reasoning.api.votes import leader_is_safe, majority, top_two


@technique(
    name="adaptive-consistency",
    family="reasoning",
    implements=("solve",),
    summary="one trace after another until the leader is safe",
)
def adaptive_consistency(task: Task, *, threshold: float = 0.95) -> Method:
    """Return the method.

    Args:
        task: The point.
        threshold: Probability of staying ahead at which sampling stops; the paper's value.

    Raises:
        OptionError: It is no probability.
    """
    require("threshold", threshold, least=0, most=1)

    def solve(question: Question) -> Plan:
        answers: list[str | None] = []
        for index in range(question.samples):
            (reply,) = yield [Sample(index=index)]
            answers.append(reply.answer)
            # Without a readable answer this is P(share > 1/2) = 1/2, which is below the paper's threshold: it goes on.
            if leader_is_safe(*top_two(answers)) > threshold:
                break
        return majority(answers)

    return solve
