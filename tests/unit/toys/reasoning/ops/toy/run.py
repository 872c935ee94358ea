"""Measures one block of ``toy``: each technique guesses all numbers, and is told whether one is too low."""

from __future__ import annotations

import random
from typing import Any

from paceline.families.reasoning.core.block.results import Ending, tell
from paceline.families.reasoning.core.sealed import sealed
from paceline.worker.ranks.loading import renewed
from paceline.worker.ranks.session import Block, Case, CaseError, Session

__all__ = ["run_block", "sealed"]

LIMIT = 64


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    seed = session.draw_seed("numbers", block.block)
    rng = random.Random(seed)
    numbers = [rng.randrange(LIMIT) for _ in range(int(block.params["questions"]))]
    tell(
        session, block, lambda: [(case, _guess(session, block, case, numbers, seed)) for case in block.cases]
    )


def _guess(session: Session, block: Block, case: Case, numbers: list[int], seed: int) -> Ending:
    counts: list[float] = []
    try:
        session.loaded(case)
        with session.guard.watch():
            guess = renewed(case.module, case.technique, block.family)(LIMIT, **case.options)
            for number in numbers:
                asked: list[int] = []

                def too_low(value: int, number: int = number, asked: list[int] = asked) -> bool:
                    asked.append(value)
                    return value < number

                if guess(too_low) != number:
                    return CaseError("incorrect", f"it does not find {number}")
                counts.append(float(len(asked)))
    except CaseError as error:
        return error
    return _result(counts, seed)


def _result(counts: list[float], seed: int) -> dict[str, Any]:
    return {
        "status": "ok",
        "metrics": {"toy_tokens": {"samples": counts}},
        "correctness": {
            "passed": True,
            "oracle": "the number",
            "gate_checks": len(counts),
            "input_seed": seed,
        },
        "accounting": {"requested": len(counts), "ok": len(counts), "failed": 0, "dropped": 0},
    }
