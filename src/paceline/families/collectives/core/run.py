"""Measures one block of the collectives family: gate, interleaved timing, bytes, error, split.

Every rank runs this in lockstep. Nothing here branches on what only one rank knows; mistakes are collected and put to
a vote at points where all ranks meet.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from paceline.base.families.family import off_formula
from paceline.families.collectives.api.problem import TORCH_DTYPES, Cost, Problem
from paceline.families.collectives.core import ceilings, passes
from paceline.families.collectives.core.caches import buffer_sets, flush_bytes
from paceline.families.collectives.core.candidate import Candidate, MutedCandidate, make_instance
from paceline.families.collectives.core.ceilings import LinkCeiling
from paceline.families.collectives.core.gate import (
    OwnJudgement,
    Passed,
)
from paceline.families.collectives.core.oracle import LossyRule, Workspace, blind_spots
from paceline.families.collectives.core.planning.sizes import element_count
from paceline.families.collectives.core.proving import gate_all
from paceline.families.collectives.core.timed_operation import Instance, TimedOperation
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.instances import Part, limits_of, merged, num_instances, salt
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import Series, Timed, measure, median, summarise

_monotonic = time.monotonic

LARGE_BYTES = 4 << 20


CALIBRATIONS = 4
"""Of the link, at the most, before a call counts as faster than it allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How blocks of one operation are measured."""

    operation: TimedOperation
    judgement: OwnJudgement | None = None
    """Of an operation that prescribes no result."""
    figures: Callable[[Session, Candidate], dict[str, Any]] | None = None
    """Metrics of this operation alone, from further untimed calls; may note on the candidate why one is absent."""
    reference_timers: Mapping[str, Callable[[Candidate], Timed]] = field(default_factory=dict)
    """By metric another timer of the same rounds, made from the first candidate."""


def measure_block(session: Session, block: Block, how: Measurement) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each.

    The gate's proof and the link's calibration hold for the launch. Above one, each instance has a process group of its
    own for what techniques send, new inputs and buffers, and techniques that are made anew.
    """
    began = _monotonic()
    # Once in a launch: all blocks share the link.
    if "link" not in session.facts:
        session.begin(block, "-", "calibrate")
        session.facts["link"] = ceilings.calibrate(session, block.link.get("rate_bytes_per_s"))
    problem = make_problem(session, block, how.operation)
    gated = gate_all(session, block, problem, how.operation, how.judgement)
    gate_s = _monotonic() - began
    count = num_instances(block)
    if count == 1:
        _run_instance(_Instance(session, block, how, began, gate_s, {}), problem, gated)
        return
    parts: dict[str, list[Part]] = {}
    for number in range(count):
        instance = _Instance(session, block, how, _monotonic(), gate_s, parts, number, count)
        own = replace(problem, seed=session.draw_seed("problem", block.block, *salt(number)) % (1 << 31))
        with session.fresh_transport():
            _run_instance(instance, own, gated)
        gated = [(case, passed) for case, passed in gated if len(parts.get(case.label, ())) > number]


@dataclass(frozen=True, slots=True)
class _Instance:
    """One of a launch's instances of a block."""

    session: Session
    block: Block
    how: Measurement
    began: float
    gate_s: float
    parts: dict[str, list[Part]]
    """By label what earlier instances gave."""
    number: int = 0
    count: int = 1

    @property
    def paid_gate_s(self) -> float:
        """Seconds of the gate that are this instance's: none of several, for they were paid before the first began."""
        return self.gate_s if self.count == 1 else 0.0

    @property
    def rounds(self) -> int | None:
        """Those of the first instance; None before it has ended."""
        return next((len(p[0].timed["latency"].samples) for p in self.parts.values()), None)

    def take(self, candidate: Candidate, part: Part, flags: Sequence[str]) -> None:
        """Keep what a technique gave; with the last instance, report all of it."""
        parts = self.parts.setdefault(candidate.label, [])
        parts.append(part)
        if len(parts) < self.count:
            return
        result = merged(parts, flags)
        if self.count > 1:
            result["harness"]["gate_s"] = self.gate_s
            latency = median(result["metrics"]["latency"]["samples"])
            result["ceilings"] = ceilings.held_against(result["ceilings"], latency)
        self.session.emit_result(self.block, candidate.case, result)


def _run_instance(instance: _Instance, problem: Problem, gated: Sequence[tuple[Case, Passed]]) -> None:
    candidates = _prepare(instance, problem, gated) if gated else []
    if candidates:
        _measure(instance, candidates)


def make_problem(session: Session, block: Block, operation: TimedOperation) -> Problem:
    """Return this rank's problem for a block's parameters."""
    params = block.params
    return Problem(
        operation=operation.name,
        rank=session.rank,
        world_size=session.world_size,
        dtype=TORCH_DTYPES[str(params["dtype"])],
        device=torch.device(session.device.torch_type),
        count=element_count(params) if operation.spec.sized else 0,
        root=int(params.get("root") or 0),
        group_ranks=int(params.get("group_ranks") or 0),
        seed=session.draw_seed("problem", block.block) % (1 << 31),
        params=dict(params),
    )


def _prepare(instance: _Instance, problem: Problem, gated: Sequence[tuple[Case, Passed]]) -> list[Candidate]:
    """Draw an instance's inputs and return the candidates that may be timed."""
    session, block, how = instance.session, instance.block, instance.how
    session.begin(block, "-", "inputs")
    operation = how.operation
    payload = str(block.params["payload"])
    size_bytes = sum(torch.Size(s).numel() * problem.item_bytes for s in operation.shapes(problem))
    # Two at the least, so that a result kept from the call before is wrong; large inputs would fill the memory.
    num_variants = 4 if size_bytes <= LARGE_BYTES else 2
    seed = session.draw_seed("inputs", block.block, *salt(instance.number))
    rules = {case.label: passed.lossy for case, passed in gated}
    variants, blind = _draw(session, how, problem, payload, seed, num_variants, rules)
    num_sets = buffer_sets(str(block.protocol["cache"]), size_bytes, session.device)
    workspaces = [Workspace(operation, problem, variants) for _ in range(num_sets)]
    candidates: list[Candidate] = []
    for case, passed in gated:
        if case.label in blind:
            reason = f"the oracle would accept known-wrong results for this point: {blind[case.label]}"
            session.emit_failure(block, case, CaseError("invalid", reason))
            continue
        try:
            technique, comm = make_instance(session, block, case, problem)
        except CaseError as error:
            session.emit_failure(block, case, error)
            continue
        candidates.append(
            Candidate(
                session=session,
                block=block,
                case=case,
                instance=technique,
                comm=comm,
                workspaces=workspaces,
                passed=passed,
                own=how.judgement,
                input_seed=seed,
                flush_bytes=flush_bytes(str(block.protocol["cache"]), session.device),
            )
        )
    return candidates


def _draw(
    session: Session,
    how: Measurement,
    problem: Problem,
    payload: str,
    seed: int,
    num_variants: int,
    rules: Mapping[str, LossyRule | None],
) -> tuple[list[Instance], dict[str, str]]:
    """Draw the inputs of all calls; also return, for each technique, the known mistakes that its oracle would miss."""
    operation = how.operation
    variants = [operation.instance(problem, payload=payload, seed=seed + i) for i in range(num_variants)]
    if how.judgement is not None:
        return variants, {}
    missed: dict[LossyRule | None, str] = {}
    for rule in dict.fromkeys(rules.values()):
        found = ", ".join(blind_spots(operation, variants, rule))
        text = session.control.first_problem(found or None)
        if text is not None:
            missed[rule] = text
    return variants, {label: missed[rule] for label, rule in rules.items() if rule in missed}


def _gathering(
    session: Session, candidates: Sequence[Candidate]
) -> Callable[[list[list[float]]], list[list[list[float]]]]:
    """Return what exchanges times after each pass, and then adapts how far ahead ranks agree to start."""

    def gather(rows: list[list[float]]) -> list[list[list[float]]]:
        everyone = session.control.gather(rows)
        late = max((a.take_lateness() for a in candidates), default=0.0)
        session.control.adapt_margin(late)
        return everyone

    return gather


def _measure(instance: _Instance, candidates: list[Candidate]) -> None:
    session, block, how, began = instance.session, instance.block, instance.how, instance.began
    limits = limits_of(block.protocol, instance.rounds if instance.number else None)
    rng = random.Random(session.draw_seed("order", block.block, *salt(instance.number)))
    for candidate in candidates:
        # From the shared seed: ranks must choose the same draw and the same scale for each call.
        candidate.rng = random.Random(rng.random())
    overlapped = candidates if how.operation.spec.computes and session.world_size > 1 else []
    muted = [MutedCandidate(candidate) for candidate in overlapped]
    references = {metric: make(candidates[0]) for metric, make in how.reference_timers.items()}

    watch, prepared = Watch(session.device.telemetry), _monotonic()
    series = measure(
        [*candidates, *muted, *references.values()],
        limits,
        clock_ns=session.device.clock_ns,
        gather=_gathering(session, candidates),
        rng=rng,
        each_batch=watch.sample,
        launch=session.launch,
    )
    spent = {
        "prepare_s": prepared - began,
        "measure_s": _monotonic() - prepared,
        "timed_s": sum(sum(s.samples) + sum(s.warmup) for s in series),
        "num_cases": len(candidates),
        "gate_s": instance.paid_gate_s,
    }
    middle = len(candidates) + len(muted)
    compute = {m.label: s for m, s in zip(muted, series[len(candidates) : middle], strict=True)}
    others = dict(zip(references, series[middle:], strict=True))
    for candidate, item in zip(candidates, series[: len(candidates)], strict=True):
        session.begin(block, candidate.label, "passes")
        passes_began = _monotonic()
        try:
            result = _result(session, how, candidate, item, compute.get(candidate.label), watch.flags)
        except CaseError as error:
            session.emit_failure(block, candidate.case, error)
            continue
        for metric, other in others.items():
            result["metrics"][metric] = summarise(other)
        result["telemetry"] = watch.facts()
        result["harness"] = {
            **spent,
            "fixed_s": (spent["prepare_s"] - spent["gate_s"]) / len(candidates) + _monotonic() - passes_began,
        }
        instance.take(candidate, Part(result=result, timed={"latency": item, **others}), watch.flags)


def _result(
    session: Session,
    how: Measurement,
    candidate: Candidate,
    item: Series,
    alone: Series | None,
    flags: Sequence[str],
) -> dict[str, Any]:
    """Judge a candidate's timed calls and run the untimed passes over it.

    Raises:
        CaseError: A timed output was wrong, a sample is faster than the link allows, or bytes went another way.
    """
    # A vote before anything is reported: what is wrong on one rank fails the technique on all.
    mistake = session.control.first_problem(candidate.mistake)
    if mistake is not None:
        raise CaseError("refused" if candidate.breached else "incorrect", f"timed call: {mistake}")
    latency = median(item.samples)
    figures = passes.bytes_and_messages(session, candidate)
    wire = int(figures["wire_bytes"][0]) if "wire_bytes" in figures else None
    # The fastest sample: a call that skips its work is found even if the median is honest.
    link = _link_for(session, how.operation, candidate, min(item.samples), wire)
    metrics: dict[str, Any] = {"latency": summarise(item, flags)}
    for name, values in figures.items():
        metrics[name] = {"samples": values}
    metrics.update(passes.errors(session, candidate, len(item.samples)))
    metrics.update(passes.split(session, candidate))
    metrics.update(passes.kernel_bytes(session, candidate, figures))
    if alone is not None:
        metrics["exposed_s"] = {
            "samples": [max(a - b, 0.0) for a, b in zip(item.samples, alone.samples, strict=True)]
        }
    if how.figures is not None:
        metrics.update(how.figures(session, candidate))
    cost = candidate.cost()
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": candidate.absent,
        "ceilings": ceilings.describe(link, cost, wire, latency),
        "predicted": _held_to(cost, figures),
        "correctness": candidate.correctness(),
        "accounting": {
            "requested": candidate.num_calls,
            "ok": candidate.num_calls,
            "failed": 0,
            "dropped": 0,
        },
        "clock": {
            "offset_ns": session.control.clock_offset_ns,
            "error_ns": session.control.clock_error_ns,
        },
    }


def _link_for(
    session: Session, operation: TimedOperation, candidate: Candidate, fastest_s: float, wire: int | None
) -> LinkCeiling | None:
    """Return the link's ceiling, once the fastest call is known to be possible; all ranks call it alike.

    A link that was calibrated while others computed looks slower than it is. So before a call counts as impossible, the
    link is calibrated again; the launch's later blocks are held to what was found.

    Raises:
        CaseError: The call is faster than the link allows.
    """
    for attempt in range(CALIBRATIONS):
        link: LinkCeiling | None = session.facts["link"]
        least = ceilings.floor_s(link, operation, candidate.problem, wire)
        if link is None or fastest_s >= least:
            return link
        if attempt < CALIBRATIONS - 1:
            rate = candidate.block.link.get("rate_bytes_per_s")
            session.facts["link"] = ceilings.calibrate_again(session, link, rate)
    raise CaseError(
        "invalid",
        f"a sample of {fastest_s:.3g} s is below the {least:.3g} s that the link allows, "
        f"calibrated {CALIBRATIONS} times",
    )


def _held_to(cost: Cost | None, figures: dict[str, list[float]]) -> dict[str, float] | None:
    """Return what a closed form gives.

    Raises:
        CaseError: ``incorrect``: something else was counted.
    """
    if cost is None:
        return None
    predicted: dict[str, float] = {
        "wire_bytes": cost.sent_bytes,
        "wire_bytes_total": cost.total_bytes,
        "messages": cost.messages,
        "steps": cost.steps,
    }
    off = off_formula({name: median(values) for name, values in figures.items()}, predicted)
    if off is not None:
        raise CaseError("incorrect", off)
    return predicted
