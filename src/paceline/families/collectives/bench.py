"""Measures one block of the collectives family: gate, interleaved timing, bytes, error, split.

Every rank runs this in lockstep. Nothing here branches on what only one rank knows; mistakes are collected and put to
a vote at points where all ranks meet.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from paceline.base.family import off_formula
from paceline.families.collectives import ceilings, passes, scenarios
from paceline.families.collectives.arm import Arm, MutedArm, make_instance
from paceline.families.collectives.bare_loop import BareLoop
from paceline.families.collectives.gate import LOSSY_COUNT, MIN_LOSSY_COUNT, Passed, gate, with_rule
from paceline.families.collectives.operation import Instance, Operation
from paceline.families.collectives.operations import TIMED_OPERATIONS
from paceline.families.collectives.oracle import LossyRule, Workspace, blind_spots
from paceline.families.collectives.problem import TORCH_DTYPES, Cost, Problem
from paceline.families.collectives.spec import OPERATIONS, element_count
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.telemetry import Watch
from paceline.worker.timing import Limits, Series, measure, median, summarise

_monotonic = time.monotonic

OVERLAPPED = ("norm_layer", "linear_attention", "sequence_attention")
"""Operations with computation of their own, for which exposed communication is measured."""
LARGE_BYTES = 4 << 20
CACHE_BYTES_FALLBACK = 32 << 20


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    operation_name = str(block.params["op"])
    if OPERATIONS[operation_name].scenario:
        scenarios.run(session, block)
        return
    began = _monotonic()
    if "link" not in session.facts:
        session.begin(block, "-", "calibrate")
        session.facts["link"] = ceilings.calibrate(session, block.link.get("rate_bytes_per_s"))
    operation = TIMED_OPERATIONS[operation_name]
    problem = make_problem(session, block)
    gated = _gate_all(session, block, operation, problem)
    gate_s = _monotonic() - began
    arms = _prepare(session, block, operation, problem, gated) if gated else []
    if arms:
        _measure(session, block, arms, began, gate_s)


def make_problem(session: Session, block: Block) -> Problem:
    """Return this rank's problem for a block's parameters."""
    params = block.params
    sized = OPERATIONS[str(params["op"])].sized
    return Problem(
        operation=str(params["op"]),
        rank=session.rank,
        world_size=session.world_size,
        dtype=TORCH_DTYPES[str(params["dtype"])],
        device=torch.device(session.device.torch_type),
        count=element_count(params) if sized else 0,
        root=int(params.get("root") or 0),
        group_ranks=int(params.get("group_ranks") or 0),
        seed=session.draw_seed("problem", block.block) % (1 << 31),
        params=dict(params),
    )


def _gate_all(
    session: Session, block: Block, operation: Operation, problem: Problem
) -> list[tuple[Case, Passed]]:
    """Return the techniques that pass their gate; the others get their results here."""
    gated: list[tuple[Case, Passed]] = []
    for case in block.cases:
        try:
            gated.append((case, _gated(session, block, case, operation, problem)))
        except CaseError as error:
            session.emit_failure(block, case, error)
    return gated


def _prepare(
    session: Session,
    block: Block,
    operation: Operation,
    problem: Problem,
    gated: Sequence[tuple[Case, Passed]],
) -> list[Arm]:
    """Draw the block's inputs and return the arms that may be timed."""
    session.begin(block, "-", "inputs")
    payload = str(block.params["payload"])
    size_bytes = sum(torch.Size(s).numel() * problem.item_bytes for s in operation.shapes(problem))
    num_variants = 4 if size_bytes <= LARGE_BYTES else 2
    seed = session.draw_seed("inputs", block.block)
    rules = {case.label: passed.lossy for case, passed in gated}
    variants, blind = _draw(session, operation, problem, payload, seed, num_variants, rules)
    num_sets = _buffer_sets(str(block.protocol["cache"]), size_bytes)
    workspaces = [Workspace(operation, problem, variants) for _ in range(num_sets)]
    arms: list[Arm] = []
    for case, passed in gated:
        if case.label in blind:
            reason = f"the oracle would accept known-wrong results for this point: {blind[case.label]}"
            session.emit_failure(block, case, CaseError("invalid", reason))
            continue
        try:
            instance, comm = make_instance(session, block, case, problem)
        except CaseError as error:
            session.emit_failure(block, case, error)
            continue
        arms.append(
            Arm(
                session=session,
                block=block,
                case=case,
                instance=instance,
                comm=comm,
                workspaces=workspaces,
                passed=passed,
                input_seed=seed,
                flush_bytes=_cache_bytes() if block.protocol["cache"] == "cold-flush" else 0,
            )
        )
    return arms


def _draw(
    session: Session,
    operation: Operation,
    problem: Problem,
    payload: str,
    seed: int,
    num_variants: int,
    rules: Mapping[str, LossyRule | None],
) -> tuple[list[Instance], dict[str, str]]:
    """Draw the inputs of all calls; also return, for each technique, the known mistakes that its oracle would miss."""
    variants = [operation.instance(problem, payload=payload, seed=seed + i) for i in range(num_variants)]
    if operation.name == "mix":
        return variants, {}
    missed: dict[LossyRule | None, str] = {}
    for rule in dict.fromkeys(rules.values()):
        found = ", ".join(blind_spots(operation, variants, rule))
        text = session.control.first_problem(found or None)
        if text is not None:
            missed[rule] = text
    return variants, {label: missed[rule] for label, rule in rules.items() if rule in missed}


def _gated(session: Session, block: Block, case: Case, operation: Operation, problem: Problem) -> Passed:
    """Return the gate's result, from this launch's memory where the same technique passed it before.

    Raises:
        CaseError: The technique was refused, does not support the point, or is wrong.
    """
    session.begin(block, case.label, "gate")
    loaded = session.loaded(case)
    assert loaded.info is not None
    lossy = not loaded.info.properties.get("exact", True) and operation.name != "mix"
    if lossy and problem.count < MIN_LOSSY_COUNT:
        reason = f"a lossy call on {problem.count} elements cannot be told from a wrong one"
        raise CaseError("unsupported", f"{reason}; it takes {MIN_LOSSY_COUNT}")
    payload = str(block.params["payload"])

    def make(point: Problem, comm: Any) -> Any:
        return loaded.factory(point, comm, **case.options)

    def prove() -> Passed:
        assert loaded.info is not None
        return gate(session, operation, problem, loaded.info, make, payload)

    fixed = {k: v for k, v in block.params.items() if k not in ("size_bytes", "payload", "root")}
    key = f"gate/{case.module}:{case.technique}/{sorted(case.options.items())}/{sorted(fixed.items())}"
    if key not in session.facts:
        make_instance(
            session, block, case, problem
        )  # support may depend on the size, which the gate does not see
    passed = _remembered(session, key, prove)
    if not lossy:
        return passed
    key = f"{key}/{payload}/{min(problem.count, LOSSY_COUNT)}"
    return _remembered(session, key, lambda: with_rule(session, operation, problem, passed, make, payload))


def _remembered(session: Session, key: str, prove: Callable[[], Passed]) -> Passed:
    """Return or raise what ``prove`` did the first time in this launch."""
    if key not in session.facts:
        try:
            session.facts[key] = prove()
        except CaseError as error:
            session.facts[key] = error
    found = session.facts[key]
    if isinstance(found, CaseError):
        raise found
    assert isinstance(found, Passed)
    return found


def _measure(session: Session, block: Block, arms: list[Arm], began: float, gate_s: float) -> None:
    protocol = block.protocol
    limits = Limits.of(protocol)
    rng = random.Random(session.draw_seed("order", block.block))
    for arm in arms:
        arm.rng = random.Random(rng.random())
    overlapped = block.params["op"] in OVERLAPPED and session.world_size > 1
    muted = [MutedArm(arm) for arm in arms] if overlapped else []
    beside = [BareLoop(arms[0])] if block.params.get("beside") == "bare-loop" else []
    prepared = _monotonic()

    def gather(rows: list[list[float]]) -> list[list[list[float]]]:
        everyone = session.control.gather(rows)
        late = max((a.take_lateness() for a in arms), default=0.0)
        session.control.adapt_margin(late)
        return everyone

    watch = Watch(session.device.telemetry)
    series = measure(
        [*arms, *muted, *beside],
        limits,
        clock_ns=session.device.clock_ns,
        gather=gather,
        rng=rng,
        each_batch=watch.sample,
    )
    timed = _monotonic()
    compute = {m.label: s for m, s in zip(muted, series[len(arms) : len(arms) + len(muted)], strict=True)}
    for arm, item in zip(arms, series[: len(arms)], strict=True):
        session.begin(block, arm.label, "passes")
        passes_began = _monotonic()
        try:
            result = _result(session, arm, item, compute.get(arm.label), watch.flags)
        except CaseError as error:
            session.emit_failure(block, arm.case, error)
            continue
        if beside:
            result["metrics"]["bare_loop_s"] = summarise(series[-1])
        result["telemetry"] = watch.facts()
        result["harness"] = {
            "prepare_s": prepared - began,
            "measure_s": timed - prepared,
            "timed_s": sum(sum(s.samples) + sum(s.warmup) for s in series),
            "num_cases": len(arms),
            "gate_s": gate_s,
            "fixed_s": (prepared - began - gate_s) / len(arms) + _monotonic() - passes_began,
        }
        session.emit_result(block, arm.case, result)


def _result(
    session: Session, arm: Arm, item: Series, alone: Series | None, flags: Sequence[str]
) -> dict[str, Any]:
    """Judge an arm's timed calls and run the untimed passes over it.

    Raises:
        CaseError: A timed output was wrong, a sample is faster than the link allows, or bytes went another way.
    """
    mistake = session.control.first_problem(arm.mistake)
    if mistake is not None:
        raise CaseError("refused" if arm.breached else "incorrect", f"timed call: {mistake}")
    latency = median(item.samples)
    figures = passes.bytes_and_messages(session, arm)
    link = session.facts["link"]
    wire = int(figures["wire_bytes"][0]) if "wire_bytes" in figures else None
    least = ceilings.floor_s(link, arm.problem, wire)
    if min(item.samples) < least:
        raise CaseError(
            "invalid",
            f"a sample of {min(item.samples):.3g} s is below the {least:.3g} s that the calibrated link allows",
        )
    metrics: dict[str, Any] = {"latency": summarise(item, flags)}
    for name, values in figures.items():
        metrics[name] = {"samples": values}
    metrics.update(passes.errors(session, arm, len(item.samples)))
    metrics.update(passes.split(session, arm))
    metrics.update(passes.kernel_bytes(session, arm, figures))
    if alone is not None:
        metrics["exposed_s"] = {
            "samples": [max(a - b, 0.0) for a, b in zip(item.samples, alone.samples, strict=True)]
        }
    metrics.update(passes.special(session, arm))
    cost = arm.cost()
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": arm.absent,
        "ceilings": ceilings.describe(link, cost, wire, latency),
        "predicted": _held_to(cost, figures),
        "correctness": arm.correctness(),
        "accounting": {
            "requested": arm.num_calls,
            "ok": arm.num_calls,
            "failed": 0,
            "dropped": 0,
        },
        "clock": {
            "offset_ns": session.control.clock_offset_ns,
            "error_ns": session.control.clock_error_ns,
        },
    }


def _buffer_sets(cache: str, size_bytes: int) -> int:
    """Return how many sets of buffers make up twice the last-level cache."""
    if cache != "cold-rotate":
        return 1
    return max(2, min(64, -(-2 * _cache_bytes() // max(size_bytes, 1))))


def _cache_bytes() -> int:
    """Return the size of the host's last-level cache, or a fallback where the kernel does not say."""
    best = 0
    for index in range(5):
        path = f"/sys/devices/system/cpu/cpu0/cache/index{index}/size"
        try:
            with open(path) as file:  # noqa: PTH123 - a sysfs attribute
                text = file.read().strip()
        except OSError:
            continue
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        best = max(best, int(text.rstrip("KM")) * scale)
    return best or CACHE_BYTES_FALLBACK


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
