"""Runs blocks of ``grouped_gemm``: techniques are proved, then timed by turns."""

from __future__ import annotations

from paceline.families.kernels.core import run
from paceline.families.kernels.ops.grouped_gemm.reference import GroupedGemm
from paceline.families.kernels.ops.grouped_gemm.spec import OPERATION
from paceline.worker.ranks.session import Block, Session

OPERATOR = GroupedGemm()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    run.run_block(session, block, OPERATOR, OPERATION.arithmetic)
