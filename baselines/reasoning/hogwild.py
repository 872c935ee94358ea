"""Hogwild! Inference: workers on one question that see each other's words as they are written.

Hogwild! Inference: Parallel LLM Generation via Concurrent Attention, 2025 (arXiv:2504.06261).

Algorithm: several traces of one model are begun at once, each at another part of the question. All of them read one
cache: to each, the question comes first, then what the others have written so far, then its own. No key is computed
or rotated again; a query is rotated for each block instead. Every worker goes on to an answer, and answers vote.
Cost: the tokens of all workers; on the critical path the longest one; a cache that holds every token once.
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
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2504.06261; the method by the header",
            "code": (
                "github.com/eqimp/hogwild_llm: shared_cache/cache_block.py, shared_cache/shared_cache_manager.py, "
                "formatting.py"
            ),
        },
        "deviations": (
            (
                "Workers begin at different parts of the question; the authors tell them by prompt to share the "
                "work."
            ),
            (
                "Nobody asks a worker whether what it does is redundant, which the authors do with a line of "
                "their prompt."
            ),
            "Queries are rotated for each block, as in the paper's figures; its public code's cache rotates keys.",
            "There is no history of finished steps apart from work in progress, as the authors' prompts have.",
            "A question of one part has one worker.",
        ),
        "constants": {
            "workers": {
                "here": 2,
                "authors": "2, Alice and Bob, formatting.py",
                "official": 2,
                "source": "github.com/eqimp/hogwild_llm: formatting.py",
            },
        },
        "checked_by": (
            "tests/unit/test_reasoning_executor.py::test_workers_share_one_cache_and_wait_for_the_longest",
            "tests/unit/test_reasoning_algebra.py::test_turned_queries_equal_keys_that_are_rotated_anew",
        ),
    },
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
