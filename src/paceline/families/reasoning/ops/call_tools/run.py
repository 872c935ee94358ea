"""Measures one block of ``call_tools``: all techniques answer a question, in a drawn order, before the next one."""

from __future__ import annotations

import random
import time
import traceback
from typing import Any

from paceline.families.reasoning.api.requests import OptionError
from paceline.families.reasoning.api.tool_calls import ToolMethod, ToolTask
from paceline.families.reasoning.core.block.results import Ending, tell
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.core.sealed import sealed
from paceline.families.reasoning.ops.call_tools.runtime import Clock, Outcome, RealClock, run_rollout
from paceline.families.reasoning.ops.call_tools.task_graph import Times, Work, draw_work
from paceline.worker.ranks.loading import renewed
from paceline.worker.ranks.session import Block, Case, CaseError, ContractBreachError, Session

__all__ = ["run_block", "sealed"]

_now, _sleep = time.perf_counter, time.sleep

ORACLE = "each answer follows from results of all tools with the right arguments; the same again on a clock that jumps"


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one event for each."""
    tell(session, block, lambda: _answer_all(session, block))


def _answer_all(session: Session, block: Block) -> list[tuple[Case, Ending]]:
    """Let all techniques answer each question, in a drawn order, before the next one comes."""
    params = block.params
    times = Times(first_s=float(params["thought_s"]), step_s=float(params["step_s"]))
    seed = session.draw_seed("tools", block.block)
    works = [
        draw_work(
            seed + number,
            steps=int(params["calls"]),
            depth=int(params["depth"]),
            tool_s=float(params["tool_s"]),
            replanned=bool(params["replanned"]),
        )
        for number in range(int(params["questions"]))
    ]
    rng = random.Random(session.draw_seed("order", block.block))
    outcomes: dict[str, list[Outcome]] = {case.label: [] for case in block.cases}
    endings: dict[str, CaseError] = {}
    for work in works:
        order = [case for case in block.cases if case.label not in endings]
        rng.shuffle(order)
        for case in order:
            try:
                outcomes[case.label].append(_answer(session, block, case, work, times))
            except CaseError as error:
                endings[case.label] = error
    return [
        (case, endings.get(case.label) or _result(works, times, outcomes[case.label], seed))
        for case in block.cases
    ]


def _answer(session: Session, block: Block, case: Case, work: Work, times: Times) -> Outcome:
    """Let one technique answer one question, in real time and again on a clock that jumps.

    Raises:
        CaseError: It was refused, has failed, or is wrong.
    """
    session.loaded(case)
    session.begin(block, case.label, "answer")

    def make() -> ToolMethod:
        task = ToolTask(num_steps=len(work.steps))
        method: ToolMethod = renewed(case.module, case.technique, block.family)(task, **case.options)
        return method

    try:
        with session.guard.watch():
            method = make()
            found = run_rollout(work, times, method, RealClock(_now, _sleep))
            again = run_rollout(work, times, make(), Clock())
    except (PlanError, OptionError, ContractBreachError) as error:
        raise CaseError("refused", str(error)) from error
    except (MemoryError, CaseError):
        raise
    except Exception as error:
        raise CaseError(
            "crashed", f"{type(error).__name__}: {error}", traceback.format_exc(limit=8)
        ) from error
    if found.answer != work.truth():
        raise CaseError("incorrect", f"it answers {found.answer}, and the tools' results give {work.truth()}")
    if (again.answer, again.invocations, again.calls) != (found.answer, found.invocations, found.calls):
        raise CaseError("incorrect", "on a clock that jumps it answers or asks otherwise")
    return found


def _result(works: list[Work], times: Times, outcomes: list[Outcome], seed: int) -> dict[str, Any]:
    critical = [work.critical_s(times) for work in works]
    samples = {
        "answer_s": [o.elapsed_s for o in outcomes],
        "over_critical": [o.elapsed_s / c for o, c in zip(outcomes, critical, strict=True)],
        "llm_calls": [float(o.invocations) for o in outcomes],
        "calls_at_once": [float(o.most_at_once) for o in outcomes],
    }
    return {
        "status": "ok",
        "metrics": {name: {"samples": values} for name, values in samples.items()},
        "ceilings": {
            "critical_s": sum(critical) / len(critical),
            "sequential_s": sum(work.sequential_s(times) for work in works) / len(works),
        },
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": 2 * len(outcomes),
            "input_seed": seed,
        },
        "accounting": {
            "requested": len(outcomes),
            "ok": len(outcomes),
            "failed": 0,
            "dropped": 0,
            "calls": sum(o.calls for o in outcomes),
            "steps_written": sum(o.written for o in outcomes),
        },
    }
