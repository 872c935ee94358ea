"""Measures one block of ``toy``: a technique plans its steps, and every call must be in one of them."""

from __future__ import annotations

from typing import Any

from paceline.families.serving.core.results import each_case, result
from paceline.families.serving.core.sealed import all_loaded
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def sealed(operations: object) -> tuple[Any, ...]:
    """Return what techniques must leave as they found it."""
    return all_loaded()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    each_case(session, block, lambda case: _planned(session, block, case))


def _planned(session: Session, block: Block, case: Case) -> dict[str, Any]:
    requests = int(block.params["requests"])
    with session.guard.watch():
        steps = session.loaded(case).factory(**case.options).plan(requests)
    if sorted(call for step in steps for call in step) != list(range(requests)):
        raise CaseError("incorrect", "a call is in no step, or in several")
    return result(
        {"toy_steps": float(len(steps))},
        checks=requests,
        oracle="every call is in one step",
        accounting={"requested": requests, "ok": requests, "failed": 0, "dropped": 0},
    )
