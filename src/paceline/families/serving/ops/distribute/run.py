"""Measures one block of ``distribute``: one model's layers shared between ranks, in virtual time over measured steps.

All ranks prove and measure the techniques in lockstep; then the first plays the load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import torch

from paceline.base.errors import UserError
from paceline.families.serving.api.layers import DTYPES, Shape
from paceline.families.serving.core.engine.model import draw_weights
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import model_of
from paceline.families.serving.core.results import result
from paceline.families.serving.core.sealed import after_every_call, all_loaded
from paceline.families.serving.core.simulation.figures import virtual_figures
from paceline.families.serving.core.simulation.laws import broken_laws
from paceline.families.serving.core.simulation.sessions import at_load, at_start, told_in_full
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.ops.distribute.candidate import ORACLE, Candidate, Ground, Proved
from paceline.families.serving.ops.distribute.played import (
    LABEL,
    NOWHERE,
    ModeCosts,
    given_of,
    mode_figures,
    play,
)
from paceline.families.serving.ops.distribute.script import draw_script, expected_states
from paceline.worker.ranks.session import Block, CaseError, Session

STEPS = 80
"""Of the script: proved in every one, and measured ``REPEATS`` times in each mode."""
REPEATS = 4
LONGEST = 160
"""Most tokens of a request of the script: enough blocks for every shape of step, few enough to be proved."""
Ready = tuple[Candidate, Proved, ModeCosts, list[dict[str, Any]]]
Found = TypeVar("Found")


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what is looked at after every call of a technique."""
    return after_every_call(__package__)


def sealed_seldom(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what is looked at when a technique was proved, measured or played."""
    return all_loaded()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    seed = session.draw_seed("calls", block.block)
    session.begin(block, "-", "inputs")
    try:
        ground = _ground(session, block, seed)
        calls = told_in_full(draw_workload(block.params, ground.shape.vocab, seed).calls)
    except UserError as error:  # of a trace
        for case in block.cases:
            session.emit_failure(block, case, CaseError("unsupported", str(error)))
        return
    candidates: list[tuple[Candidate, Proved]] = []
    for case in block.cases:
        session.begin(block, case.label, "gate")
        try:
            candidate = Candidate(session, case, ground)
            candidates.append((candidate, candidate.prove(seed)))
        except CaseError as error:
            session.emit_failure(block, case, error)
    _measure(session, block, [candidate for candidate, _ in candidates], seed)
    link = {"rate": float(block.params["rank_link"]), "delay": float(block.params["rank_link_delay"])}
    ready: list[Ready] = []
    for candidate, proved in candidates:
        session.begin(block, candidate.label, "play")
        costs = candidate.costs(link)
        tables = [table for table, _ in costs]
        with session.guard.watch():
            candidate.made.learn(tables)
        facts = [
            f | {"mode": m, "costs": t.facts()} for m, (t, f) in zip(candidate.modes, costs, strict=True)
        ]
        ready.append((candidate, proved, ModeCosts(candidate.made, tables), facts))
    if session.rank == 0:
        _play_all(session, block, ready, calls)


def _ground(session: Session, block: Block, seed: int) -> Ground:
    """Draw the model and the script, and compute what must come out, on the first rank for all."""
    params = block.params
    shape = Shape.of(model_of(params, seed))
    device = torch.device(session.device.torch_type)
    weights = {n: w.to(device, DTYPES[shape.dtype]) for n, w in draw_weights(shape).items()}
    engine = {k: int(params[k]) for k in ("block_size", "num_blocks", "max_batch", "token_budget")}
    num_slots = engine["block_size"] * engine["num_blocks"]
    script = draw_script(
        shape,
        engine,
        num_steps=STEPS,
        longest=min(LONGEST, shape.max_context, num_slots),
        seed=seed,
        device=device,
    )
    wanted = sum(len(step.wanted) for step in script.steps)
    expected = torch.zeros(wanted, shape.hidden, dtype=torch.float64)
    if session.rank == 0:
        expected += expected_states(script, shape, weights)
    session.control.sum_in_place(expected)
    return Ground(
        shape=shape, weights=weights, script=script, expected=expected, num_slots=num_slots, device=device
    )


def _measure(session: Session, block: Block, candidates: Sequence[Candidate], seed: int) -> None:
    """Measure every mode of every technique in turn, in a fresh order each time."""
    rng = random.Random(f"{seed}/order")
    turns = [(candidate, mode) for candidate in candidates for mode in range(len(candidate.modes))]
    for _ in range(REPEATS):
        for candidate, mode in rng.sample(turns, len(turns)):
            session.begin(block, candidate.label, "measure costs")
            session.control.barrier()
            candidate.measure(mode)


def _play_all(session: Session, block: Block, ready: Sequence[Ready], calls: Sequence[Call]) -> None:
    """Play the load on every technique, at a share of what the baseline carries."""
    if not ready:
        return
    base = next((r for r in ready if r[0].label == block.baseline), ready[0])
    together = [at_start(call) for call in calls]
    log = _fenced(session, lambda: play(together, _given(block, base[0]), base[2]))
    capacity = len(calls) / max(token.at_s for token in log.tokens)
    timed = at_load(calls, float(block.params["load"]) * capacity)
    for candidate, proved, costs, facts in ready:
        session.begin(block, candidate.label, "play")
        try:
            session.emit_result(
                block,
                candidate.case,
                _played(session, block, candidate, proved, costs, facts, timed, capacity),
            )
        except CaseError as error:
            session.emit_failure(block, candidate.case, error)


def _given(block: Block, candidate: Candidate) -> Any:
    return given_of(block.params, replicas=candidate.session.world_size if candidate.replicated else 1)


def _fenced(session: Session, act: Callable[[], Found]) -> Found:
    with session.guard.watch():
        found = act()
    session.guard.check()
    return found


def _played(
    session: Session,
    block: Block,
    candidate: Candidate,
    proved: Proved,
    costs: ModeCosts,
    facts: Sequence[Mapping[str, Any]],
    calls: Sequence[Call],
    capacity: float,
) -> dict[str, Any]:
    """Serve the load, judge the log, and read the figures from it.

    Raises:
        CaseError: The log breaks a law, or a mode is none.
    """
    given = _given(block, candidate)
    try:
        log = _fenced(session, lambda: play(calls, given, costs))
    except ValueError as error:
        raise CaseError("incorrect", str(error)) from error
    problems = broken_laws(log, calls, costs, NOWHERE, block_size=given.block_size)
    if problems:
        raise CaseError("incorrect", "; ".join(problems))
    metrics, curve = virtual_figures(log, calls, block.params)
    metrics |= mode_figures(log, costs, [float(f["sent_per_token"]) for f in facts])
    metrics |= {
        "kv_switched": proved.moved_bytes,
        "kv_copies": proved.held,
        "held_weights": proved.weights,
        "layer_deviation": proved.off,
    }
    metrics.pop("prefix_cache_hit_rate", None)  # nothing is shared between requests here
    return result(
        metrics,
        checks=proved.checks,
        oracle=f"{ORACLE}; laws of conservation, read from the log of every step and token",
        accounting=trace_facts(block.params)
        | {
            "requested": len(calls),
            "ok": len(calls),
            "failed": 0,
            "dropped": 0,
            "label": LABEL,
            "modes": [dict(f) for f in facts],
            "capacity_per_s": capacity,
            "engine": {n: sum(c[n] for c in log.counters) for n in log.counters[0]},
            "curve": curve,
        },
    )
