"""Scripted scenarios with faults."""

from __future__ import annotations

from paceline.worker.session import Block, Session


def run(session: Session, block: Block) -> None:
    """Run the scenario of a block."""
    raise NotImplementedError
