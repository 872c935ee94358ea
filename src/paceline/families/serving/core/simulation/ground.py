"""What all techniques of a block in virtual time stand on: its calls, and costs measured on the real engine.

Costs of steps are measured first, and the simulator is held against the engine: replayed with the very times of an
executed trace it must be that trace. Every figure is labelled as virtual time from measured costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import UserError
from paceline.families.serving.api.predicting import Configuration
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import model_of
from paceline.families.serving.core.results import each_case
from paceline.families.serving.core.simulation.costs import LABEL, Costs
from paceline.families.serving.core.simulation.executed import Executed, errors, measure, replay_problem
from paceline.families.serving.core.simulation.sessions import told_in_full
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.worker.ranks.session import Block, Case, CaseError, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all techniques of a block stand on."""

    calls: tuple[Call, ...]
    costs: Costs
    executed: tuple[Executed, ...]
    check: Mapping[str, Any]
    """How far off the simulator is, for the record."""


def on_measured_costs(
    session: Session,
    block: Block,
    configurations: Sequence[Configuration],
    one: Callable[[Case, Ground], dict[str, Any]],
    *,
    most_executed: int | None = None,
) -> None:
    """Measure costs, then each technique of a block on them.

    Args:
        session: Of the launch; its first rank does all.
        block: Of calls to the engine.
        configurations: Under which the calls are executed on the real engine.
        one: Measures a technique.
        most_executed: How many of the calls are executed; all where it is None.
    """
    if session.rank != 0:
        return
    try:
        ground = _measured(session, block, configurations, most_executed)
    except CaseError as error:
        # Without costs nobody can be measured: every technique of the block gets the same reason.
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    each_case(session, block, lambda case: one(case, ground))


def _measured(
    session: Session, block: Block, configurations: Sequence[Configuration], most_executed: int | None
) -> Ground:
    """Draw the calls, measure costs, execute the closed trace, and hold the simulator against it.

    Raises:
        CaseError: The simulator is not the engine.
    """
    params = block.params
    seed = session.draw_seed("calls", block.block)
    model = model_of(params, seed)
    try:
        calls = told_in_full(draw_workload(params, int(model["vocab"]), seed).calls)
    except UserError as error:  # of a trace
        raise CaseError("unsupported", str(error)) from error
    closed = calls[:most_executed]
    session.begin(block, block.cases[0].label, "measure costs")
    costs, executed = measure(closed, configurations, model, device=session.device.torch_type, seed=seed)
    for trace in executed:
        # Before any figure: a simulator that is not the engine would make all of them meaningless.
        problem = replay_problem(closed, trace)
        if problem is not None:
            raise CaseError("invalid", f"the simulator is not the engine: {problem}")
    off = [errors(closed, trace, costs) for trace in executed]
    check = {
        "label": LABEL,
        "replayed": len(executed),
        "makespan_error": max(o["makespan"] for o in off),
        "ttft_error": max(o["ttft"] for o in off),
        "executed_calls": len(closed),
    }
    return Ground(calls=calls, costs=costs, executed=tuple(executed), check=check)
