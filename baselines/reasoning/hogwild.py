"""Hogwild! Inference: workers on one question that see each other's words as they are written.

Hogwild! Inference: Parallel LLM Generation via Concurrent Attention, 2025 (arXiv:2504.06261).

Algorithm: several traces of one model are begun at once, each at another part of the question. All of them read one
cache: to each, the question comes first, then what the others have written so far, then its own. No key is computed
or rotated again; a query is rotated for each block instead. Every worker goes on to an answer, and answers vote.
Cost: the tokens of all workers; on the critical path the longest one; a cache that holds every token once.
Differences: the paper tells workers by prompt to share the work, and asks them whether what they do is redundant; ours
begin at different parts and know of each other by what they see alone. A question of one part has one worker.
Limits: a model that was never shown somebody else's unfinished line may copy it, or sum up before all parts are there.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Share, Task, require
from paceline.families.reasoning.api.votes import majority


@technique(
    name="hogwild",
    family="reasoning",
    implements=("solve",),
    summary="workers that see each other's words as they are written",
    paper="hogwild-inference",
)
def hogwild(task: Task, *, workers: int = 2) -> Method:
    """Return the method.

    Args:
        task: The point.
        workers: Traces at a time, as far as a question has parts.

    Raises:
        OptionError: There are none.
    """
    require("workers", workers, least=1)

    def solve(question: Question) -> Plan:
        count = min(workers, question.num_parts)
        if count < 2:
            (alone,) = yield [Sample(index=0)]
            return alone.answer
        # The prompt is one block that all read; opened without decoding, so that no token comes before the workers
        # part.
        (root,) = yield [Sample(index=0, tokens=0)]
        # All in one round: workers that began later would not have been seen from the start.
        replies = yield [Share(trace=root.trace, part=part) for part in range(count)]
        return majority(reply.answer for reply in replies)

    return solve
