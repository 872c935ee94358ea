"""Measures one block of ``coded_gradients``: a master and workers that straggle, in virtual time.

A process plays the master; another runs it again on what it was told. The log is judged here, by code that plays
nothing.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import Any

from paceline.families.training.api.coding import Plan
from paceline.families.training.core import apart
from paceline.families.training.ops.coded_gradients import child
from paceline.families.training.ops.coded_gradients.engine import Played, load_of
from paceline.families.training.ops.coded_gradients.judge import SAME, broken_laws, recovery_error
from paceline.families.training.ops.coded_gradients.straggling import Straggling
from paceline.families.training.ops.coded_gradients.work import Work
from paceline.worker.ranks.session import Block, Case, CaseError, Session

LABEL = "virtual time: drawn states of workers and times as long as their loads"
ORACLE = (
    "whole gradients by other code; laws of rounds and deliveries; the master run again on what it was told"
)


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    seed = session.draw_seed("coded_gradients", block.block)
    apart.measure_each(session, block, "coded_gradients", lambda case: _measured(block, case, seed))


def _measured(block: Block, case: Case, seed: int) -> dict[str, Any]:
    """Play a technique, judge the log, and read the figures.

    Raises:
        CaseError: It breaks a law, or delivers something else than whole gradients.
    """
    asked = {
        "case": asdict(case) | {"options": dict(case.options)},
        "params": dict(block.params),
        "seed": seed,
    }
    answer = pickle.loads(apart.ask(child.play, asked))
    apart.fail(answer)
    played: Played = answer["played"]
    plan: Plan = answer["plan"]
    again = {**asked, "answers": played.answers, "wanted": played.wanted}
    alone = pickle.loads(apart.ask(child.replay, again))
    apart.fail(alone)
    if alone["problem"] is not None:
        raise CaseError("incorrect", f"the master: {alone['problem']}")
    wrong = broken_laws(played, plan, block.params, Straggling(block.params, seed))
    if wrong:
        raise CaseError("incorrect", "; ".join(wrong))
    error = recovery_error(played, plan, Work(block.params, seed))
    # Written with not: NaN compares false, and proves nothing.
    if not error <= SAME:
        raise CaseError(
            "incorrect", f"a sum that it delivered is off the whole gradient by {error:.3g} of it"
        )
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in _figures(played, plan, error).items()},
        "absent": {},
        "correctness": {"passed": True, "oracle": ORACLE, "gate_checks": len(played.delivered)},
        "accounting": {"label": LABEL, "rounds": len(played.rounds), "delay": plan.delay},
    }


def _figures(played: Played, plan: Plan, error: float) -> dict[str, float]:
    asked = [sum(bool(tasks) for tasks in r.tasks) for r in played.rounds]
    full = [len(r.arrived) == count for r, count in zip(played.rounds, asked, strict=True)]
    return {
        "virtual_run_time": max(at_s for _, at_s, _, _ in played.delivered),
        "worker_load": max(load_of(tasks, plan.shares) for r in played.rounds for tasks in r.tasks),
        "full_wait_share": sum(full) / len(full),
        "recovery_error": error,
    }
