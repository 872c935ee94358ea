"""Runs blocks of ``lm_head_loss``: techniques are proved, then timed by turns."""

from __future__ import annotations

from paceline.families.kernels.core import run
from paceline.families.kernels.ops.lm_head_loss.reference import LmHeadLoss
from paceline.families.kernels.ops.lm_head_loss.spec import OPERATION
from paceline.worker.ranks.session import Block, Session

OPERATOR = LmHeadLoss()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    run.run_block(session, block, OPERATOR, OPERATION.arithmetic)
