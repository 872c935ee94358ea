"""Best of n by the model's own confidence: all traces at once, and the answer of the one it was surest of.

Common property. Confidence is the mean log-probability of a trace's tokens; no reward model is used.

Algorithm: sample n traces; score each by the mean log-probability of its tokens; return the best one's answer.
Cost: as self-consistency: n traces' tokens, the longest one on the critical path, the cache of all of them.
Differences: traces whose answer cannot be read are left out.
Limits: a model that is sure of its mistakes misleads it; a vote cannot be misled by one trace.
"""

from __future__ import annotations

from statistics import fmean

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(
    name="best-of-n",
    family="reasoning",
    implements=("solve",),
    summary="the answer of the trace with the highest mean log-probability",
)
def best_of_n(task: Task) -> Method:
    """Return the method."""

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i) for i in range(question.samples)]
        read = [reply for reply in replies if reply.answer is not None]
        # The mean and not the sum, which would favour short traces whatever they say.
        return max(read, key=lambda reply: fmean(reply.logprobs)).answer if read else None

    return solve
