"""Measures one block in virtual time: deployments on devices that nobody has, and predictions of those that are there.

Costs of steps are measured on the real engine first, and the simulator is held against it: replayed with the very times
of an executed trace it must be that trace. Every figure is labelled as virtual time from measured costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paceline.base.errors import UserError
from paceline.families.serving.deploying import Given, OnePerDevice
from paceline.families.serving.engine.model import Shape
from paceline.families.serving.load.calls import Call
from paceline.families.serving.model_sizes import SIZES
from paceline.families.serving.predicting import Configuration, Counts
from paceline.families.serving.simulation.cluster import Cluster, Link
from paceline.families.serving.simulation.costs import LABEL, Costs
from paceline.families.serving.simulation.executed import (
    Executed,
    at_start,
    errors,
    measure,
    replay_problem,
)
from paceline.families.serving.simulation.laws import broken_laws, instance_copies
from paceline.families.serving.simulation.log import DoneStep, Log, Part, Token, Transfer
from paceline.families.serving.simulation.sessions import told_in_full
from paceline.families.serving.virtual_figures import virtual_figures
from paceline.families.serving.virtual_results import ask, each_case, keep, result
from paceline.families.serving.workloads import draw_workload, trace_facts
from paceline.worker.session import Block, Case, CaseError, Session

TOLD = ("prompt", "output_tokens", "tenant", "at_s", "after", "pause_s")
"""What the process of a simulation hears of a call."""
CHECKED_CALLS = 24
"""Of the workload, executed on the real engine to hold the simulator against."""
PLANS = ((16, 256, 1.0), (4, 256, 1.0), (32, 64, 0.5), (32, 256, 0.25), (8, 64, 0.5), (64, 256, 0.15))
"""Of ``predict``: most requests and tokens of a step, and the share of the point's blocks that the cache has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """What all techniques of a block share."""

    calls: tuple[Call, ...]
    costs: Costs
    executed: tuple[Executed, ...]
    check: Mapping[str, Any]


def run_virtual_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block of ``simulate`` or ``predict``."""
    try:
        point = _measured(session, block)
    except CaseError as error:
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    one = _simulated if block.params["op"] == "simulate" else _predicted
    each_case(session, block, lambda case: one(session, block, case, point))


def _measured(session: Session, block: Block) -> _Point:
    """Draw the calls, measure costs, execute the closed trace, and hold the simulator against it.

    Raises:
        CaseError: The simulator is not the engine.
    """
    params = block.params
    seed = session.draw_seed("calls", block.block)
    model = _model(params, seed)
    try:
        calls = told_in_full(draw_workload(params, int(model["vocab"]), seed).calls)
    except UserError as error:  # of a trace
        raise CaseError("unsupported", str(error)) from error
    predicting = params["op"] == "predict"
    closed = calls if predicting else calls[:CHECKED_CALLS]
    session.begin(block, block.cases[0].label, "measure costs")
    costs, executed = measure(
        closed, configurations(params), model, device=session.device.torch_type, seed=seed
    )
    for trace in executed:
        problem = replay_problem(closed, trace)
        if problem is not None:
            raise CaseError("invalid", f"the simulator is not the engine: {problem}")
    off = [errors(closed, trace, costs) for trace in executed]
    check = {
        "label": LABEL,
        "replayed": len(executed),
        "makespan_error": max(o["makespan"] for o in off),
        "ttft_error": max(o["ttft"] for o in off),
        "executed_calls": len(closed),
    }
    return _Point(calls=calls, costs=costs, executed=tuple(executed), check=check)


def _model(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {**SIZES[str(params["model"])], "dtype": params["dtype"], "seed": seed % 2**31}


def configurations(params: Mapping[str, Any]) -> list[Configuration]:
    """Return the configurations that are executed: the point's own, or as many plans as it asks for."""
    size, blocks = int(params["block_size"]), int(params["num_blocks"])
    if params["op"] != "predict":
        chosen = [(int(params["max_batch"]), int(params["token_budget"]), 1.0)]
    else:
        chosen = list(PLANS[: int(params["plans"])])
    return [
        Configuration(max_batch=b, token_budget=t, num_blocks=max(2, round(blocks * share)), block_size=size)
        for b, t, share in chosen
    ]


def _simulated(session: Session, block: Block, case: Case, point: _Point) -> dict[str, Any]:
    """Play the workload on a deployment, judge the log, and read the figures from it."""
    params = block.params
    given = given_of(params, point.costs)
    capacity = capacity_per_s(point.calls, given, point.costs)
    calls = at_load(point.calls, float(params["load"]) * capacity)
    link = Link(bytes_per_s=float(params["kv_link"]), delay_s=float(params["kv_link_delay"]))
    told = ask(
        session,
        case,
        {
            "op": "simulate",
            "given": asdict(given),
            "costs": point.costs.facts(),
            "link": asdict(link),
            "calls": [{name: getattr(c, name) for name in TOLD} for c in calls],
        },
    )
    log = log_of(told["log"])
    problems = broken_laws(log, calls, point.costs, link, block_size=given.block_size)
    if problems:
        raise CaseError("incorrect", "; ".join(problems))
    metrics, curve = virtual_figures(log, calls, params)
    metrics["kv_moved"] = float(sum(t.size_bytes for t in log.transfers))
    metrics["weight_copies"] = float(instance_copies(log))
    metrics |= {k: float(point.check[k]) for k in ("makespan_error", "ttft_error")}
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
            "costs": point.costs.facts(),
            "simulator": dict(point.check),
            "capacity_per_s": capacity,
            "engine": {n: sum(c[n] for c in log.counters) for n in log.counters[0]},
            "curve": curve,
        },
        artifacts={"simulation": keep(told["log"], session, block, case)},
    )


def _predicted(session: Session, block: Block, case: Case, point: _Point) -> dict[str, Any]:
    """Let a technique predict all configurations, and hold it against what was executed."""
    told = ask(
        session,
        case,
        {
            "op": "predict",
            "costs": point.costs.facts(),
            "trace": [[len(c.prompt), c.output_tokens] for c in point.calls],
            "configurations": [asdict(e.configuration) for e in point.executed],
        },
    )["predicted"]
    problems = [p for e, t in zip(point.executed, told, strict=True) if (p := wrong_counts(e, t)) is not None]
    if problems:
        raise CaseError("incorrect", "; ".join(problems[:3]))
    table = [
        {**asdict(e.configuration), "executed_s": e.makespan_s, "executed_ttft_s": e.mean_ttft_s}
        | {"predicted_s": t["makespan_s"], "predicted_ttft_s": t["ttft_s"]}
        for e, t in zip(point.executed, told, strict=True)
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
            "costs": point.costs.facts(),
            "simulator": dict(point.check),
            "plans": table,
        },
    )


def wrong_counts(executed: Executed, told: Mapping[str, Any]) -> str | None:
    """Say what a prediction counts that the engine did not do, or None; and whether it is a number at all."""
    c = executed.configuration
    name = f"under {c.max_batch} requests, {c.token_budget} tokens and {c.num_blocks} blocks"
    for quantity in ("makespan_s", "ttft_s"):
        value = told[quantity]
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            return f"the predicted {quantity} {name} is {value!r}"
    if told["counts"] is None:
        return None
    found = Counts(**told["counts"])
    did = Counts(
        steps=len(executed.steps),
        computed_tokens=sum(n for step in executed.steps for _, n, _ in step.pieces),
        preemptions=int(executed.counters["preemptions"]),
    )
    return None if found == did else f"{name} the engine did {did}, and {found} was predicted"


def given_of(params: Mapping[str, Any], costs: Costs) -> Given:
    """Return what a deployment gets; a further copy of the weights takes as many blocks as its bytes fill."""
    shape = Shape.of(_model(params, 0))
    itemsize = 2 if params["dtype"] == "bfloat16" else 4
    weights = num_weights(shape) * itemsize
    size = int(params["block_size"])
    return Given(
        devices=int(params["devices"]),
        blocks_per_device=int(params["num_blocks"]),
        weight_blocks=-(-weights // (costs.kv_bytes_per_token * size)),
        block_size=size,
        max_batch=int(params["max_batch"]),
        token_budget=int(params["token_budget"]),
    )


def num_weights(shape: Shape) -> int:
    """Return how many weights a model has."""
    kv = shape.kv_heads * shape.head_dim
    layer = 2 * shape.hidden + 2 * shape.hidden**2 + 2 * kv * shape.hidden + 3 * shape.inner * shape.hidden
    return shape.layers * layer + shape.hidden + 2 * shape.vocab * shape.hidden


def capacity_per_s(calls: Sequence[Call], given: Given, costs: Costs) -> float:
    """Return calls a second that whole devices serve when all calls are there at the start."""
    log = Cluster(OnePerDevice(), given, costs, Link(bytes_per_s=1e9)).play([at_start(c) for c in calls])
    return len(calls) / max(t.at_s for t in log.tokens)


def at_load(calls: Sequence[Call], rate_per_s: float) -> list[Call]:
    """Return calls whose instants are stretched so that they come at a rate; their pattern stays."""
    last_s = max(c.at_s or 0.0 for c in calls)
    factor = (len(calls) / rate_per_s) / last_s if last_s else 0.0
    return [c if c.at_s is None else replace(c, at_s=c.at_s * factor) for c in calls]


def log_of(told: Mapping[str, Any]) -> Log:
    """Read what another process has written."""
    return Log(
        steps=[
            DoneStep(
                **{k: s[k] for k in ("worker", "begin_s", "end_s", "seen")},
                parts=[Part(**p) for p in s["parts"]],
                spans=[(float(a), float(b)) for a, b in s["spans"]],
            )
            for s in told["steps"]
        ],
        tokens=[Token(**t) for t in told["tokens"]],
        transfers=[Transfer(**t) for t in told["transfers"]],
        memories=[(int(d), int(b)) for d, b in told["memories"]],
        workers=[(int(m), str(p)) for m, p in told["workers"]],
        counters=[dict(c) for c in told["counters"]],
    )
