"""ReAct: one thought, one call, and again.

Yao, Zhao, Yu, Du, Shafran, Narasimhan and Cao, 2022, "ReAct: Synergizing Reasoning and Acting in Language Models".

Algorithm: ask the language model what to do next; call the tool that it names; put the result before it and ask again,
until it answers.
Cost: one invocation for every call and one for the answer; the sum of all durations.
Differences: the language model is a script, whose thoughts take the time of what it writes.
Limits: calls that do not depend on each other wait all the same.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.tool_calls import (
    Call,
    Called,
    Rollout,
    Think,
    Thought,
    ToolMethod,
    ToolTask,
)


@technique(
    name="react",
    family="reasoning",
    implements=("call_tools",),
    summary="one thought, one call, and again",
)
def react(task: ToolTask, *, together: bool = False) -> ToolMethod:
    """Return the method.

    Args:
        task: The point.
        together: Whether a thought may name all calls whose arguments are there: parallel function calling.
    """

    def answer() -> Rollout:
        results: dict[int, int] = {}
        while True:
            thought = yield [Think(together=together)]
            assert isinstance(thought, Thought)
            if thought.answer is not None:
                return thought.answer
            calls = [
                Call(number=s.number, arguments=tuple(results[d] for d in s.depends)) for s in thought.steps
            ]
            # Sent back when the first call returns; `yield []` then waits for each further one.
            event = yield calls
            for _ in calls[1:]:
                assert isinstance(event, Called)
                results[event.number] = event.result
                event = yield []
            assert isinstance(event, Called)
            results[event.number] = event.result

    return answer
