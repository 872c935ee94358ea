"""Multiverse: parts are written at the same time, and what they wrote is put together without being read again.

Multiverse: Your Language Models Secretly Decide How to Parallelize and Merge Generation, 2025 (arXiv:2506.09991):
map, process, reduce inside of the model.

Algorithm: one trace is opened after the question (map). Each part that stands alone continues it, sees nothing of its
siblings, and begins at the same position (process). Their keys and values are then put behind each other as they are,
and one trace goes on behind the longest of them, by the question's conclusion (reduce). A question of one part is
solved by one trace. Several such solutions may vote.
Cost: the tokens of one trace; on the critical path the longest part and what follows; no token is read twice.
Limits: a model that was not taught positions that overlap may lose what a part found.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Drop,
    Fork,
    Merge,
    Method,
    Plan,
    Question,
    Request,
    Sample,
    Task,
    require,
)
from paceline.families.reasoning.api.votes import majority


@technique(
    name="multiverse",
    family="reasoning",
    implements=("solve",),
    summary="independent parts are written at the same time, and merged without being read again",
    paper="multiverse",
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the ledger's summary; the paper itself was not read",
            "code": "none could be read",
        },
        "deviations": (
            "The question names its parts; the paper's model writes the tags that split and merge.",
            (
                "The model was trained on parts that follow each other, so that what it sees in the merge it has "
                "never seen; the paper's was fine-tuned to see them side by side."
            ),
        ),
        "constants": {
            "traces": {"here": 1, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_reasoning_executor.py::test_merged_parts_are_not_read_again",
            "tests/unit/test_reasoning_algebra.py::test_a_merge_equals_one_masked_pass_and_reads_no_token_again",
        ),
    },
)
def multiverse(task: Task, *, traces: int = 1) -> Method:
    """Return the method.

    Args:
        task: The point.
        traces: Solutions that vote.

    Raises:
        OptionError: A question does not have as many traces.
    """
    require("traces", traces, least=1, most=task.samples)

    def solve(question: Question) -> Plan:
        if question.num_parts < 2:
            alone = yield [Sample(index=i) for i in range(traces)]
            return majority(reply.answer for reply in alone)
        roots = yield [Sample(index=i, tokens=0) for i in range(traces)]
        parts = range(question.num_parts)
        # One round for all, so on the critical path they count as the longest part and not as their sum.
        threads = yield [Fork(trace=root.trace, part=part) for root in roots for part in parts]
        merges: list[Request] = []
        for i, root in enumerate(roots):
            own = threads[i * len(parts) : (i + 1) * len(parts)]
            # A path that ended the whole solution, or found no room, has no part that could be merged.
            if not any(thread.ended for thread in own):
                merges.append(Merge(trace=root.trace, forks=tuple(thread.trace for thread in own)))
        # A negative number is a fork for which the context had no room: there is nothing to drop.
        freed = [Drop(trace=thread.trace) for thread in threads if thread.trace >= 0]
        # In this order: a merge copies keys and values, which a drop gives up.
        replies = yield [*merges, *freed]
        return majority(reply.answer for reply in replies[: len(merges)])

    return solve
