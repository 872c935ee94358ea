"""Measures one block of ``overlap``: a batch's operators ordered on one device, in virtual time.

An order is judged by laws that know nothing of how it was found, and computed on a small model; then its time is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.overlapping import Given, NanoBatch
from paceline.families.serving.core.isolated import ask
from paceline.families.serving.core.results import each_case, result, write_log
from paceline.families.serving.ops.overlap.figures import figures
from paceline.families.serving.ops.overlap.gate import broken_laws
from paceline.families.serving.ops.overlap.operators import given_of, least_s
from paceline.families.serving.ops.overlap.split import deviation
from paceline.worker.ranks.session import Block, Case, CaseError, Session

CHILD = "paceline.families.serving.ops.overlap.child"
LABEL = "virtual time from datasheets' rates and a stated exchange of shares"
ORACLE = (
    "every row once, behind the rows it needs, on no more than one device; cut batches computed as whole ones"
)
MAX_DEVIATION = 1e-5
"""Of numbers in float32, over the largest."""


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    if session.rank != 0:
        return
    given = given_of(block.params)
    seed = session.draw_seed("model", block.block)
    each_case(session, block, lambda case: _ordered(session, block, case, given, seed))


def _ordered(session: Session, block: Block, case: Case, given: Given, seed: int) -> dict[str, Any]:
    """Let a technique order the batch, judge the order, and read the figures."""
    told = ask(case, CHILD, {"given": asdict(given)})["batches"]
    batches = [NanoBatch(**b) for b in told]
    problems = broken_laws(batches, given)
    if problems:
        raise CaseError("incorrect", "; ".join(problems))
    apart = deviation(batches, given, seed)
    if not apart <= MAX_DEVIATION:
        raise CaseError(
            "incorrect", f"cut batches differ from whole ones by {apart:.3g} of the largest number"
        )
    return result(
        {**figures(batches, given, least_s(given)), "split_deviation": apart},
        checks=len(batches),
        oracle=ORACLE,
        accounting={
            "label": LABEL,
            "nano_batches": len(batches),
            "operators": [{**asdict(o), "alone_s": given.alone_s(o, o.rows)} for o in given.operators],
        },
        artifacts={"order": write_log(_of(told, given), session, block, case)},
    )


def _of(told: Any, given: Given) -> Mapping[str, Any]:
    return {"given": asdict(given), "batches": told}
