"""Measures one block of ``simulate``: deployments on devices that nobody has, in virtual time from measured costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.predicting import Configuration
from paceline.families.serving.core.isolated import ask
from paceline.families.serving.core.results import result, write_log
from paceline.families.serving.core.simulation.cluster import Link
from paceline.families.serving.core.simulation.costs import LABEL
from paceline.families.serving.core.simulation.figures import virtual_figures
from paceline.families.serving.core.simulation.ground import Ground, on_measured_costs
from paceline.families.serving.core.simulation.laws import broken_laws, instance_copies
from paceline.families.serving.core.simulation.log import log_of
from paceline.families.serving.core.simulation.sessions import at_load
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.ops.simulate.given import capacity_per_s, given_of
from paceline.worker.ranks.session import Block, Case, CaseError, Session

TOLD = ("prompt", "output_tokens", "tenant", "at_s", "after", "pause_s")
"""What the process of a simulation hears of a call."""
CHECKED_CALLS = 24
"""Of the workload, executed on the real engine to hold the simulator against."""
CHILD = "paceline.families.serving.ops.simulate.child"


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    engine = ("max_batch", "token_budget", "num_blocks", "block_size")
    own = Configuration(**{name: int(block.params[name]) for name in engine})
    on_measured_costs(
        session,
        block,
        [own],
        lambda case, ground: _simulated(session, block, case, ground),
        most_executed=CHECKED_CALLS,
    )


def _simulated(session: Session, block: Block, case: Case, ground: Ground) -> dict[str, Any]:
    """Play the workload on a deployment, judge the log, and read the figures from it."""
    params = block.params
    given = given_of(params, ground.costs)
    capacity = capacity_per_s(ground.calls, given, ground.costs)
    calls = at_load(ground.calls, float(params["load"]) * capacity)
    link = Link(bytes_per_s=float(params["kv_link"]), delay_s=float(params["kv_link_delay"]))
    told = ask(
        case,
        CHILD,
        {
            "given": asdict(given),
            "costs": ground.costs.facts(),
            "link": asdict(link),
            "calls": [{name: getattr(c, name) for name in TOLD} for c in calls],
        },
    )
    log = log_of(told["log"])
    problems = broken_laws(log, calls, ground.costs, link, block_size=given.block_size)
    if problems:
        raise CaseError("incorrect", "; ".join(problems))
    metrics, curve = virtual_figures(log, calls, params)
    metrics["kv_moved"] = float(sum(t.size_bytes for t in log.transfers))
    metrics["weight_copies"] = float(instance_copies(log))
    metrics |= {k: float(ground.check[k]) for k in ("makespan_error", "ttft_error")}
    return result(
        metrics,
        checks=len(log.steps),
        oracle="laws of conservation, read from the log of every step, token and transfer",
        accounting=trace_facts(params)
        | {
            "requested": len(calls),
            "ok": len(calls),
            "failed": 0,
            "dropped": 0,
            "label": LABEL,
            "costs": ground.costs.facts(),
            "simulator": dict(ground.check),
            "capacity_per_s": capacity,
            "engine": {n: sum(c[n] for c in log.counters) for n in log.counters[0]},
            "curve": curve,
        },
        artifacts={"simulation": write_log(told["log"], session, block, case)},
    )
