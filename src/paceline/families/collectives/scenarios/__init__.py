"""Scripted scenarios with faults: peers that die, join, stall, or are slow.

Peers are child processes of the ranks, so that killing one costs the scenario's subject its peer and the harness
nothing. A rank starts its peer, talks to it over pipes, and observes it with its own clock.
"""

from __future__ import annotations

from paceline.worker.session import Block, Session


def run(session: Session, block: Block) -> None:
    """Run a block's scenario for each of its techniques and emit one ``result`` event for each."""
    from paceline.families.collectives.scenarios import churn, localisation  # noqa: PLC0415

    scripts = {"churn": churn.run_case, "fault_localisation": localisation.run_case}
    script = scripts[str(block.params["op"])]
    for case in block.cases:
        session.begin(block, case.label, "scenario")
        script(session, block, case)
