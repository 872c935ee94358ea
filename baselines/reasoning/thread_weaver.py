"""ThreadWeaver: parts of a solution that do not need each other are written at the same time, then joined.

ThreadWeaver: Adaptive Threading for Efficient Parallel Reasoning in Language Models, 2025: the client's state machine
over an ordinary completion interface, which needs no change to the engine.

Algorithm: one trace is opened after the question. For each part that stands alone a thread continues it by the part's
opening, until the part ends. When all threads have ended, one trace continues the question by all parts in their order,
as if it had written them itself, and goes on to the answer. Several such solutions may vote.
Cost: the tokens that one trace would have spent, without what it would have repeated; on the critical path the longest
part and what follows the join; the parts are read once more by the joined trace, which forces and does not decode them.
Differences: the paper's model names the parts itself (outlines between control tokens) and was trained to; here the
question names them, and the model was trained on solutions whose parts come in any order, so that each may come first.
Its reinforcement learning is not part of this.
A thread that ends the whole solution instead of its part is of no use, and its solution does not vote.
Limits: a part that wants another one's result must come after the join; a question of one part gains nothing.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.requests import Fork, Method, Plan, Question, Sample, Task
from paceline.families.reasoning.votes import majority


@technique(
    name="thread-weaver",
    family="reasoning",
    implements=("solve",),
    summary="independent parts are written at the same time, then joined",
    paper="threadweaver",
    options={"traces": 1},
)
def thread_weaver(task: Task, *, traces: int = 1) -> Method:
    """Return the method.

    Args:
        task: The point.
        traces: Solutions that vote.
    """

    def solve(question: Question) -> Plan:
        roots = yield [Sample(index=i, tokens=0) for i in range(min(traces, question.samples))]
        threads = yield [
            Fork(trace=root.trace, forced=opening, stop=question.part_end)
            for root in roots
            for opening in question.parts
        ]
        count = len(question.parts)
        joins = []
        for i, root in enumerate(roots):
            parts = list(zip(question.parts, threads[i * count : (i + 1) * count], strict=True))
            if not any(thread.ended for _, thread in parts):
                forced = tuple(t for opening, thread in parts for t in (*opening, *thread.tokens))
                joins.append(Fork(trace=root.trace, forced=forced))
        joined = yield joins
        return majority(reply.answer for reply in joined)

    return solve
