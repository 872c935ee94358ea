"""LLMCompiler: a planner streams calls with placeholders, and each begins when its arguments are there.

Kim, Moon, Tabrizi, Lee, Mahoney, Keutzer and Gholami, 2023, "An LLM Compiler for Parallel Function Calling"
(arXiv:2312.04511), section 3.

Algorithm: one invocation plans; steps arrive while it still writes (streaming planner). A unit that fetches tasks keeps
those whose arguments are missing, puts results in the place of placeholders, and hands to the executor whatever is
complete. When all have returned, a second invocation joins: it answers, or asks for another plan, which begins again.
Cost: two invocations a plan; the longest chain of planned steps and calls.
Limits: steps that depend on what a tool finds must wait for another plan.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.tool_calls import (
    Action,
    Call,
    Called,
    Join,
    Joined,
    Plan,
    PlanEnded,
    Planned,
    Rollout,
    Step,
    ToolMethod,
    ToolTask,
)


@technique(
    name="llm-compiler",
    family="reasoning",
    implements=("call_tools",),
    summary="a planner streams calls, and each begins when its arguments are there",
    paper="llmcompiler",
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3 by the header, not read for this card",
            "code": (
                "github.com/SqueezeAILab/LLMCompiler: src/llm_compiler/task_fetching_unit.py, "
                "src/llm_compiler/llm_compiler.py"
            ),
        },
        "deviations": (
            "The language model is a script, and tools are stubs that take their time.",
            "A task begins the moment its arguments are there; the authors' unit looks every 10 ms.",
            "Plans follow each other until there is an answer; the authors allow a given number.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_tool_calls.py::test_each_technique_takes_the_time_of_its_closed_form",
            "tests/unit/test_tool_calls.py::test_another_plan_needs_the_results_of_the_one_before",
        ),
    },
)
def llm_compiler(task: ToolTask) -> ToolMethod:
    """Return the method."""

    def answer() -> Rollout:
        # Kept across plans: what was called for one plan fills placeholders of the next.
        results: dict[int, int] = {}
        while True:
            yield from _one_plan(results)
            joined = yield [Join()]
            assert isinstance(joined, Joined)
            if joined.answer is not None:
                return joined.answer

    return answer


def _one_plan(results: dict[int, int]) -> Rollout:
    """Let one plan be written and carried out; results are added to what is known."""
    waiting: list[Step] = []
    planning, calling = True, 0
    asked: list[Action] = [Plan()]
    while True:
        event = yield asked
        match event:
            case Planned():
                waiting.append(event.step)
            case PlanEnded():
                planning = False
            case Called():
                results[event.number] = event.result
                calling -= 1
            case _:
                pass
        # After every event, so a call begins while the planner still writes: that is the streaming planner's gain over
        # a plan that is read when it is whole.
        ready = [step for step in waiting if all(d in results for d in step.depends)]
        waiting = [step for step in waiting if step not in ready]
        asked = [Call(number=s.number, arguments=tuple(results[d] for d in s.depends)) for s in ready]
        calling += len(ready)
        # All three: calls may return while the planner still writes, and a planned step may wait for one that runs.
        if not (planning or waiting or calling):
            return None
