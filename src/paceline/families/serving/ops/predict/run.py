"""Measures one block of ``predict``: what techniques say of configurations, held against these on the real engine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline.families.serving.core.isolated import ask
from paceline.families.serving.core.results import result
from paceline.families.serving.core.simulation.costs import LABEL
from paceline.families.serving.core.simulation.ground import Ground, on_measured_costs
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.ops.predict.gate import wrong_counts
from paceline.families.serving.ops.predict.plans import configurations
from paceline.worker.ranks.session import Block, Case, CaseError, Session

CHILD = "paceline.families.serving.ops.predict.child"


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    on_measured_costs(
        session,
        block,
        configurations(block.params),
        lambda case, ground: _predicted(block, case, ground),
    )


def _predicted(block: Block, case: Case, ground: Ground) -> dict[str, Any]:
    """Let a technique predict all configurations, and hold it against what was executed."""
    told = ask(
        case,
        CHILD,
        {
            "costs": ground.costs.facts(),
            "trace": [[c.prompt_tokens, c.output_tokens] for c in ground.calls],
            "configurations": [asdict(e.configuration) for e in ground.executed],
        },
    )["predicted"]
    problems = [
        p for e, t in zip(ground.executed, told, strict=True) if (p := wrong_counts(e, t)) is not None
    ]
    if problems:
        raise CaseError("incorrect", "; ".join(problems[:3]))
    table = [
        {**asdict(e.configuration), "executed_s": e.makespan_s, "executed_ttft_s": e.mean_ttft_s}
        | {"predicted_s": t["makespan_s"], "predicted_ttft_s": t["ttft_s"]}
        for e, t in zip(ground.executed, told, strict=True)
    ]
    chosen = min(table, key=lambda row: row["predicted_s"])
    best_s = min(row["executed_s"] for row in table)
    metrics = {
        "makespan_error": max(abs(r["predicted_s"] / r["executed_s"] - 1.0) for r in table),
        "ttft_error": max(abs(r["predicted_ttft_s"] / r["executed_ttft_s"] - 1.0) for r in table),
        "plan_regret": chosen["executed_s"] / best_s - 1.0,
    }
    return result(
        metrics,
        checks=len(table),
        oracle="the engine's own steps, computed tokens and preemptions under every configuration",
        accounting=trace_facts(block.params)
        | {
            "label": LABEL,
            "costs": ground.costs.facts(),
            "simulator": dict(ground.check),
            "plans": table,
        },
    )
