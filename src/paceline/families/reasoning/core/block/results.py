"""Tells how each technique of a block has ended, when all of them have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.base.errors import UserError
from paceline.worker.ranks.session import Block, Case, CaseError, Session

Ending = dict[str, Any] | CaseError
"""A technique's result, or why it has none."""


def tell(session: Session, block: Block, measure: Callable[[], list[tuple[Case, Ending]]]) -> None:
    """Measure all techniques of a block and emit one ``result`` or ``failure`` event for each.

    Events come at the end: after a process has died the whole block is drawn anew, so techniques share all questions.

    Args:
        session: The launch's.
        block: Whose techniques are measured.
        measure: Returns how each of them has ended.
    """
    session.begin(block, "-", "traces")
    try:
        results = measure()
    except UserError as error:  # of a model or of problems that are not there
        results = [(case, CaseError("crashed", str(error))) for case in block.cases]
    for case, ending in results:
        if isinstance(ending, CaseError):
            session.emit_failure(block, case, ending)
        else:
            session.emit_result(block, case, ending)
