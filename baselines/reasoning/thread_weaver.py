"""ThreadWeaver: parts of a solution that do not need each other are written at the same time, then joined.

ThreadWeaver: Adaptive Threading for Efficient Parallel Reasoning in Language Models, 2025: the client's state machine
over an ordinary completion interface, which needs no change to the engine.

Algorithm: one trace is opened after the question. For each part that stands alone a thread continues it by the part's
opening, until the part ends. When all threads have ended, one trace continues the question by all parts in their order,
as if it had written them itself, and goes on to the answer. Several such solutions may vote.
Cost: the tokens that one trace would have spent, without what it would have repeated; on the critical path the longest
part and what follows the join, where several solutions wait for each other's threads; the joined trace reads the parts
once more, forced and not decoded.
A thread that ends the whole solution instead of its part is of no use, and its solution does not vote.
Limits: a part that wants another one's result must come after the join; a question of one part gains nothing.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Drop,
    Fork,
    Join,
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
    name="thread-weaver",
    family="reasoning",
    implements=("solve",),
    summary="independent parts are written at the same time, then joined",
    paper="threadweaver",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the client's state machine by the header, not read for this card",
            "code": "github.com/facebookresearch/threadweaver: threadweaver_sft/src/simple_eval.py, README.md",
        },
        "deviations": (
            (
                "The question names the parts; the authors' model writes outlines between control tokens, and was "
                "trained to."
            ),
            "The model was trained on solutions whose parts come in any order, so that each may come first.",
            "A solution branches once; the authors' client branches again at every further block of outlines.",
            "Reinforcement learning is not part of this.",
        ),
        "constants": {
            "traces": {"here": 1, "authors": "set by the user"},
        },
        "checked_by": (
            (
                "tests/unit/test_reasoning_executor.py::test_threads_are_written_at_once_and_joined_without_being_decoded_again"
            ),
            "tests/unit/test_reasoning_algebra.py::test_one_flattened_pass_equals_a_request_for_each_thread",
        ),
    },
)
def thread_weaver(task: Task, *, traces: int = 1) -> Method:
    """Return the method.

    Args:
        task: The point.
        traces: Solutions that vote.

    Raises:
        OptionError: A question does not have as many traces.
    """
    require("traces", traces, least=1, most=task.samples)

    def solve(question: Question) -> Plan:
        # Opened without decoding: what is forked is the prompt, read once for all threads.
        roots = yield [Sample(index=i, tokens=0) for i in range(traces)]
        parts = range(question.num_parts)
        threads = yield [Fork(trace=root.trace, part=part) for root in roots for part in parts]
        joins: list[Request] = []
        for i, root in enumerate(roots):
            own = threads[i * len(parts) : (i + 1) * len(parts)]
            # A thread that ended by itself has written past its part, or had no room.
            if not any(thread.ended for thread in own):
                joins.append(Join(trace=root.trace, forks=tuple(thread.trace for thread in own)))
        # Before the join, which reads texts and no cache: an unchanged engine has no way to put caches together.
        yield [Drop(trace=thread.trace) for thread in threads if thread.trace >= 0]
        joined = yield joins
        return majority(reply.answer for reply in joined)

    return solve
