"""Runs blocks of ``toy``: techniques are proved, then timed by turns."""

from __future__ import annotations

from paceline.families.kernels.ops.toy.reference import Toy
from paceline.families.kernels.ops.toy.spec import OPERATION

from paceline.families.kernels.core import run
from paceline.worker.ranks.session import Block, Session

OPERATOR = Toy()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    run.run_block(session, block, OPERATOR, OPERATION.arithmetic)
