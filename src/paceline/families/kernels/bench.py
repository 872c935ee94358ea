"""Measures one block of the kernels family: gate, interleaved passes, memory.

This process draws inputs, knows the results, keeps the second clock and judges. Techniques compute in cells.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.families.kernels import ceilings
from paceline.families.kernels.accounting import clock_allowance_ns
from paceline.families.kernels.arm import Arm
from paceline.families.kernels.beside import METRICS as BESIDE
from paceline.families.kernels.beside import BesideArm, seconds_to_interval
from paceline.families.kernels.cells import Cell, Nursery
from paceline.families.kernels.gate import gate
from paceline.families.kernels.operations import OPERATIONS
from paceline.families.kernels.oracle import blind_spots
from paceline.families.kernels.point import Point
from paceline.families.kernels.problem import TORCH_DTYPES
from paceline.families.kernels.scenario import run_tile_choice
from paceline.families.kernels.timers import time_again
from paceline.families.kernels.workloads import WORKLOADS
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.telemetry import Watch
from paceline.worker.timing import Limits, Series, measure, median, summarise

_monotonic = time.monotonic

NUM_DRAWS = 3
PASS_S = 0.002
"""A pass of short calls should last about this long."""
MAX_SETS = 64
MAX_SET_BYTES = 512 << 20
SLOWEST_READ = 1e9
"""Bytes a second: reading tensors into the caches is never slower."""
HOT_SHARE = 0.5
"""Share of the second-level cache that the working sets of a hot pass may fill."""


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    began = _monotonic()
    nursery = session.facts.get("nursery")
    if nursery is None:
        nursery = session.facts["nursery"] = Nursery()
    if "ceilings" not in session.facts:
        session.begin(block, "-", "calibrate")
        session.facts["ceilings"] = {}
    cells: dict[str, Cell] = {}
    try:
        if WORKLOADS[str(block.params["op"])].scenario:
            _run_scenario(session, block, nursery, cells)
        else:
            _run(session, block, make_point(session, block), nursery, cells, began)
    finally:
        for cell in cells.values():
            cell.end()


def make_point(session: Session, block: Block) -> Point:
    """Return a block's point with its operation and dtype."""
    params = dict(block.params)
    return Point(
        operation=OPERATIONS[str(params["op"])],
        params=params,
        dtype=TORCH_DTYPES[str(params["dtype"])],
        device=session.device.torch_type,
        timeout_s=0.8 * float(block.protocol["timeout_s"]),
    )


def _run(
    session: Session, block: Block, point: Point, nursery: Nursery, cells: dict[str, Cell], began: float
) -> None:
    seeds = [session.draw_seed("inputs", block.block, i) for i in range(NUM_DRAWS)]
    arms: list[Arm] = []
    draws = None
    for case in block.cases:
        session.begin(block, case.label, "gate")
        try:
            cell = cells[case.label] = _open(session, block, case, nursery)
            checks = gate(point, cell, seeds)
            if draws is None:
                draws = point.draw(seeds)
                blind = blind_spots(point.operation, draws, point.specs[1])
                if blind:
                    reason = f"the oracle would accept known-wrong results for this point: {', '.join(blind)}"
                    raise CaseError("invalid", reason)
            rng = random.Random(session.draw_seed("variations", block.block, case.label))
            arms.append(
                Arm(
                    session=session,
                    block=block,
                    case=case,
                    cell=cell,
                    point=point,
                    draws=draws,
                    rng=rng,
                    num_checks=checks,
                )
            )
        except CaseError as error:
            session.emit_failure(block, case, error)
    gate_s = _monotonic() - began
    ready: list[Arm] = []
    if not arms:
        return
    sets = _num_sets(block, point, arms)
    for arm in arms:
        try:
            arm.allocate(sets)
            ready.append(arm)
        except CaseError as error:
            session.emit_failure(block, arm.case, error)
    if ready:
        _measure(
            session, block, ready, sets, began, gate_s, lambda kind: _witness(session, block, nursery, kind)
        )


def _witness(session: Session, block: Block, nursery: Nursery, kind: str) -> Cell:
    """Start a cell that testifies; ``kind`` is one of ``witnesses.WITNESSES``.

    Raises:
        CaseError: It could not be started.
    """
    log = Path("logs") / f"cell-{session.launch}-{block.block}-{kind}.log"
    threads = int(block.params["threads"])
    cell = nursery.start(
        block.cases[0], device=session.device.torch_type, threads=threads, log=log.absolute()
    )
    try:
        cell.ask({"do": "load", "witness": kind}, timeout_s=0.8 * float(block.protocol["timeout_s"]))
    except CaseError:
        cell.end()
        raise
    return cell


def _open(session: Session, block: Block, case: Case, nursery: Nursery) -> Cell:
    """Start a cell for a technique and let it import the technique.

    Raises:
        CaseError: Its source is refused, or it cannot be imported.
    """
    loaded = session.loaded(case)
    assert loaded.refusal is None
    log = Path("logs") / f"cell-{session.launch}-{block.block}-{case.label.replace('/', '.')}.log"
    threads = int(block.params["threads"])
    cell = nursery.start(case, device=session.device.torch_type, threads=threads, log=log.absolute())
    try:
        cell.ask({"do": "load"}, timeout_s=0.8 * float(block.protocol["timeout_s"]))
    except CaseError:
        cell.end()
        raise
    return cell


def _run_scenario(session: Session, block: Block, nursery: Nursery, cells: dict[str, Cell]) -> None:
    ready = []
    for case in block.cases:
        try:
            cells[case.label] = _open(session, block, case, nursery)
            ready.append(case)
        except CaseError as error:
            session.emit_failure(block, case, error)
    if ready:
        for case, result in zip(ready, run_tile_choice(session, block, cells, ready), strict=True):
            session.emit_result(block, case, result)


def point_bytes(point: Point) -> int:
    """Return the bytes of one working set."""
    return max(sum(s.num_bytes for s in (*point.specs[0], *point.specs[1])), 1)


def _num_sets(block: Block, point: Point, arms: Sequence[Arm]) -> int:
    """Return R, the calls of one pass: enough for the clock, within the caches that the protocol asks for.

    The fastest technique's trial call sets R, the same for all.
    """
    cache = str(block.protocol["cache"])
    if cache == "cold-flush":
        return 1
    set_bytes = point_bytes(point)
    fits = max(MAX_SET_BYTES // set_bytes, 1)
    if cache == "cold-rotate":
        return max(2, min(-(-2 * ceilings.last_level_cache_bytes() // set_bytes), MAX_SETS, fits))
    quickest = min(arm.trial_s for arm in arms)
    wanted = int(PASS_S / max(quickest, 1e-9)) + 1
    hot = max(int(HOT_SHARE * ceilings.private_cache_bytes() // set_bytes), 1)
    return max(1, min(wanted, MAX_SETS, hot, fits))


def _measure(
    session: Session,
    block: Block,
    arms: list[Arm],
    sets: int,
    began: float,
    gate_s: float,
    witness: Callable[[str], Cell],
) -> None:
    protocol = block.protocol
    limits = Limits.of(protocol)
    prepared = _monotonic()
    for arm in arms:
        _set_cache_policy(arm, str(protocol["cache"]), sets)
    rng = random.Random(session.draw_seed("order", block.block))
    watch = Watch(session.device.telemetry)
    other = str(block.params["beside"])
    beside = [BesideArm(a, other) for a in arms] if other in BESIDE else []
    series = measure(
        [*arms, *beside],
        limits,
        clock_ns=time.monotonic_ns,
        gather=session.control.gather,
        rng=rng,
        each_batch=watch.sample,
    )
    timed = _monotonic()
    allowance = clock_allowance_ns([(arm.pass_ns, arm.unaccounted_ns) for arm in arms])
    ceiling, floor = ceilings.of_block(session, block), ceilings.floor_of(session, block)
    for number, (arm, item) in enumerate(zip(arms, series, strict=False)):
        session.begin(block, arm.label, "passes")
        try:
            result = arm.result(item, allowance, floor, witness)
            _time_again(session, arm, floor, result)
        except CaseError as error:
            session.emit_failure(block, arm.case, error)
            continue
        result["metrics"]["latency"] = summarise(item, watch.flags)
        result["telemetry"] = watch.facts()
        if beside:
            _add_beside(result, other, (arm, item), (beside[number], series[len(arms) + number]))
        _hold_against(result, ceilings.describe(block.params, ceiling, median(item.samples)))
        result["harness"] = {
            "prepare_s": prepared - began,
            "measure_s": timed - prepared,
            "timed_s": (sum(item.samples) + sum(item.warmup)) * sets,
            "num_cases": len(arms),
            "gate_s": gate_s,
            "calls_per_sample": sets,
        }
        session.emit_result(block, arm.case, result)


def _time_again(session: Session, arm: Arm, floor: ceilings.Floor, result: dict[str, Any]) -> None:
    """Add what other timers say, where the protocol asks for them.

    Raises:
        CaseError: A call was wrong under one of them.
    """
    wanted = str(arm.block.protocol.get("extra_timers", "none"))
    session.begin(arm.block, arm.label, "extra timers")
    metrics, absent = time_again(
        arm,
        session.device,
        wanted,
        floor=floor,
        allowed_ns=result["accounting"]["allowed_ns"],
    )
    result["metrics"] |= metrics
    result["absent"] |= absent


def _hold_against(result: dict[str, Any], held: dict[str, Any]) -> None:
    """Add the ceilings of a measurement, and its fractions of them."""
    result["ceilings"] = held
    if held["fraction_of_calibrated"] is not None:
        result["metrics"]["calibrated_fraction"] = {"samples": [held["fraction_of_calibrated"]]}
    if "fraction_of_datasheet" in held:
        result["metrics"]["datasheet_fraction"] = {"samples": [held["fraction_of_datasheet"]]}
    else:
        result["absent"]["datasheet_fraction"] = held["datasheet_reason"]


def _set_cache_policy(arm: Arm, policy: str, sets: int) -> None:
    arm.flush_bytes = 2 * ceilings.last_level_cache_bytes() if policy == "cold-flush" else 0
    arm.hot = policy == "hot"
    arm.touch_ns = int(1e9 * sets * point_bytes(arm.point) / SLOWEST_READ)


def _add_beside(
    result: dict[str, Any], timer: str, own: tuple[Arm, Series], other: tuple[BesideArm, Series]
) -> None:
    result["metrics"][BESIDE[timer]] = summarise(other[1])
    result["accounting"]["seconds_to_one_percent"] = {
        "paceline": seconds_to_interval(own[1].samples, own[0].costs_s),
        timer.partition("-")[0]: seconds_to_interval(other[1].samples, other[0].costs_s),
    }
