"""Measures one block of an operation: gate, interleaved passes, memory.

This process draws inputs, knows the results, keeps the second clock and judges. Techniques compute in timing processes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.families.kernels.api.problem import TORCH_DTYPES
from paceline.families.kernels.core import ceilings
from paceline.families.kernels.core.accounting import clock_allowance_ns
from paceline.families.kernels.core.candidate import Candidate
from paceline.families.kernels.core.gate import gate
from paceline.families.kernels.core.operators import Operator
from paceline.families.kernels.core.oracle import blind_spots
from paceline.families.kernels.core.planning.arithmetic import Arithmetic
from paceline.families.kernels.core.point import KEPT_BYTES, KEPT_SHARE, Point
from paceline.families.kernels.core.reference_timer import METRICS as REFERENCE
from paceline.families.kernels.core.reference_timer import ReferenceTimer, seconds_to_interval
from paceline.families.kernels.core.sandboxed import cases as sandboxes
from paceline.families.kernels.core.sandboxed.candidate import IN_A_SANDBOX, SandboxedCandidate
from paceline.families.kernels.core.sandboxed.process import SandboxedProcess
from paceline.families.kernels.core.starting import fork_server_of, open_idle, open_process
from paceline.families.kernels.core.timers import METRICS as TIMERS
from paceline.families.kernels.core.timers import time_again
from paceline.families.kernels.core.timing_process.client import ForkServer, TimingProcess
from paceline.families.kernels.core.working_sets import num_sets, set_cache_policy
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.instances import Part, limits_of, merged, num_instances, salt
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import Series, measure, median, summarise

_monotonic = time.monotonic

NUM_DRAWS = 3


def run_block(session: Session, block: Block, operator: Operator, arithmetic: Arithmetic) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each.

    Args:
        session: The rank's.
        block: What is measured.
        operator: Oracle of the block's operation.
        arithmetic: What a call costs at the least.
    """
    began = _monotonic()
    server = fork_server_of(session, block)
    count = num_instances(block)
    instances = _Instances(count=count, cases=list(block.cases))
    for number in range(count):
        instances.number = number
        processes: dict[str, TimingProcess] = {}
        try:
            _run(
                _Task(session, block, make_point(session, block, operator), arithmetic, began, instances),
                server,
                processes,
            )
        finally:
            for process in processes.values():
                sandboxes.finished(process)
        instances.cases = [c for c in block.cases if len(instances.parts.get(c.label, ())) > number]
        began = _monotonic()


def make_point(session: Session, block: Block, operator: Operator) -> Point:
    """Return a block's point with its oracle and dtype."""
    params = dict(block.params)
    memory = session.device.describe()["memory_bytes"]
    return Point(
        operator=operator,
        params=params,
        dtype=TORCH_DTYPES[str(params["dtype"])],
        device=session.device.torch_type,
        # Below the limit of the whole block: a stuck technique loses its process, and the others go on.
        timeout_s=0.8 * float(block.protocol["timeout_s"]),
        kept_bytes=max(memory // KEPT_SHARE, KEPT_BYTES) if memory else KEPT_BYTES,
    )


@dataclass(slots=True, kw_only=True)
class _Instances:
    """What a launch's instances of a block share: proofs, calls of a pass, and what the earlier ones gave."""

    count: int
    cases: list[Case]
    """Those that no earlier instance has failed."""
    parts: dict[str, list[Part]] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    """By label the checked calls of the gate, which the first instance made."""
    sets: int = 0
    """Calls of a pass."""
    proof_s: float = 0.0
    number: int = 0

    @property
    def rounds(self) -> int | None:
        """Those of the first instance; None before it has ended."""
        return next((len(p[0].timed["latency"].samples) for p in self.parts.values()), None)


@dataclass(frozen=True, slots=True)
class _Task:
    """What one instance of a block measures."""

    session: Session
    block: Block
    point: Point
    arithmetic: Arithmetic
    began: float
    instances: _Instances


def _run(task: _Task, server: ForkServer, processes: dict[str, TimingProcess]) -> None:
    session, block, point, instances = task.session, task.block, task.point, task.instances
    seeds = [session.draw_seed("inputs", block.block, i, *salt(instances.number)) for i in range(NUM_DRAWS)]
    candidates: list[Candidate] = []
    draws = None
    for case in instances.cases:
        session.begin(block, case.label, "gate")
        try:
            process = processes[case.label] = open_process(session, block, case, server)
            checks = _proven(task, case, process, seeds)
            # Only once some technique has passed: the float64 results of a large point take time and memory.
            if draws is None:
                draws = point.draw(seeds)
                blind = blind_spots(point.operator, draws, point.specs[1])
                if blind:
                    reason = f"the oracle would accept known-wrong results for this point: {', '.join(blind)}"
                    raise CaseError("invalid", reason)
            # A stream for each technique: what is drawn for one does not depend on which others are there.
            drawn = session.draw_seed("variations", block.block, case.label, *salt(instances.number))
            rng = random.Random(drawn)
            facts: dict[str, Any] = {
                **{"session": session, "block": block, "case": case, "process": process, "point": point},
                **{"draws": draws, "rng": rng, "num_checks": checks},
            }
            candidates.append(_candidate(process, facts))
        except CaseError as error:
            sandboxes.failed(processes.get(case.label))
            session.emit_failure(block, case, error)
    gate_s = _monotonic() - task.began
    ready: list[Candidate] = []
    if not candidates:
        return
    # All techniques are tried before any is allocated: the quickest decides for all.
    sets = instances.sets = instances.sets or num_sets(session, block, point, candidates)
    for candidate in candidates:
        # Before empty passes are timed, which are as a candidate's.
        set_cache_policy(candidate, str(block.protocol["cache"]), sets)
        try:
            candidate.allocate(sets)
            ready.append(candidate)
        except CaseError as error:
            sandboxes.failed(candidate.process)
            session.emit_failure(block, candidate.case, error)
    if ready:
        _measure(task, ready, sets, gate_s, lambda: open_idle(session, block, server))


def _candidate(process: TimingProcess, facts: dict[str, Any]) -> Candidate:
    """Return who is timed: by its own clock and its judge's, or in a sandbox by its judge's alone."""
    if not isinstance(process, SandboxedProcess):
        return Candidate(**facts)
    session, block, case, kind = facts["session"], facts["block"], facts["case"], process.kind
    return SandboxedCandidate(idle=lambda: sandboxes.open_empty(session, block, case, kind), **facts)


def _proven(task: _Task, case: Case, process: TimingProcess, seeds: Sequence[int]) -> int:
    """Return the number of calls by which a technique was proven; it is proven once in a launch.

    It is proven whole once in a run; later launches prove it at the point itself, on one draw of their own. That also
    warms up what is made anew in each launch, such as a compiled kernel.

    Raises:
        CaseError: It was wrong somewhere, or failed.
    """
    checks = task.instances.checks
    if case.label not in checks:
        began = _monotonic()
        key = f"gate/{task.block.block}/{case.case_id}"
        earlier = task.session.earlier_proof(key)
        checks[case.label] = gate(task.point, process, seeds, brief=earlier is not None)
        if earlier is None:
            task.session.tell_proof(key, {"num_checks": checks[case.label]})
        else:
            checks[case.label] += int(earlier["num_checks"])
        task.instances.proof_s += _monotonic() - began
    return checks[case.label]


def _measure(
    task: _Task,
    candidates: list[Candidate],
    sets: int,
    gate_s: float,
    open_idle: Callable[[], TimingProcess],
) -> None:
    session, block, arithmetic = task.session, task.block, task.arithmetic
    protocol = block.protocol
    instances, prepared = task.instances, _monotonic()
    limits = limits_of(protocol, instances.rounds if instances.number else None)
    rng = random.Random(session.draw_seed("order", block.block, *salt(instances.number)))
    watch = Watch(session.device.telemetry)
    other = str(block.params["reference_timer"])
    references = [ReferenceTimer(a, other) for a in candidates] if other in REFERENCE else []
    series = measure(
        [*candidates, *references],
        limits,
        # Of this process: the technique's own clock only fills the samples.
        clock_ns=time.monotonic_ns,
        gather=session.control.gather,
        rng=rng,
        each_batch=watch.sample,
        launch=session.launch,
    )
    ended = _monotonic()
    session.waiting = _waiting(session.waiting, candidates)
    # After all series: what messages cost on this machine is seen from all techniques together.
    allowance = clock_allowance_ns([(c.pass_ns, c.unaccounted_ns) for c in candidates])
    ceiling = ceilings.of_block(session, block, arithmetic)
    floor = ceilings.floor_of(session, block, arithmetic)
    for number, (candidate, item) in enumerate(zip(candidates, series, strict=False)):
        session.begin(block, candidate.label, "passes")
        try:
            result = candidate.result(item, allowance, floor, open_idle)
            _time_again(session, candidate, floor, result)
        except CaseError as error:
            sandboxes.failed(candidate.process)
            session.emit_failure(block, candidate.case, error)
            continue
        timed = {"latency": item}
        result["metrics"]["latency"] = summarise(item, watch.flags)
        result["telemetry"] = watch.facts()
        if references:
            timed[REFERENCE[other]] = series[len(candidates) + number]
            _add_reference(result, other, (candidate, item), (references[number], timed[REFERENCE[other]]))
        _hold_against(result, ceilings.describe(arithmetic, block.params, ceiling, median(item.samples)))
        result["harness"] = {
            "prepare_s": prepared - task.began,
            "measure_s": ended - prepared,
            "timed_s": (sum(item.samples) + sum(item.warmup)) * sets,
            "num_cases": len(candidates),
            "gate_s": gate_s,
            "calls_per_sample": sets,
        }
        _take(task, candidate, Part(result=result, timed=timed), watch.flags)


def _waiting(earlier: float | None, candidates: Sequence[Candidate]) -> float | None:
    """Return the share of its time for which a pass had no core, of this instance or before; None of other timers.

    It is the upper quartile of a technique's passes, and the worst technique's: a latency is the median of passes, to
    which few that lost their core do nothing. None where passes are timed by a device, or by their judge alone.
    """
    if any(c.point.device != "cpu" or isinstance(c, SandboxedCandidate) for c in candidates):
        return None
    # Told by the technique's own process: it can keep a launch from being set aside, and no more.
    shares = [_upper_quartile(c) for c in candidates if c.pass_ns]
    return max([0.0, *shares, *([] if earlier is None else [earlier])])


def _upper_quartile(candidate: Candidate) -> float:
    shares = sorted(1 - b / p for p, b in zip(candidate.pass_ns, candidate.busy_ns, strict=True) if p > 0)
    return shares[3 * len(shares) // 4] if shares else 0.0


def _take(task: _Task, candidate: Candidate, part: Part, flags: Sequence[str]) -> None:
    """Keep what an instance of a technique gave; with the last one, report all of it."""
    instances, block = task.instances, task.block
    parts = instances.parts.setdefault(candidate.label, [])
    parts.append(part)
    if len(parts) < instances.count:
        return
    result = merged(parts, flags)
    if instances.count > 1:
        result["harness"]["gate_s"] = instances.proof_s
        ceiling = ceilings.of_block(task.session, block, task.arithmetic)
        latency = median(result["metrics"]["latency"]["samples"])
        _hold_against(result, ceilings.describe(task.arithmetic, block.params, ceiling, latency))
    result["isolation"] = sandboxes.isolation_of(task.session, candidate.case)
    task.session.emit_result(block, candidate.case, result)


def _time_again(
    session: Session, candidate: Candidate, floor: ceilings.Floor, result: dict[str, Any]
) -> None:
    """Add what other timers say, where the protocol asks for them.

    Raises:
        CaseError: A call was wrong under one of them.
    """
    wanted = str(candidate.block.protocol.get("extra_timers", "none"))
    if isinstance(candidate, SandboxedCandidate):
        result["absent"] |= {m: IN_A_SANDBOX for t, m in TIMERS.items() if wanted in (t, "all")}
        return
    session.begin(candidate.block, candidate.label, "extra timers")
    metrics, absent = time_again(
        candidate,
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


def _add_reference(
    result: dict[str, Any], timer: str, own: tuple[Candidate, Series], other: tuple[ReferenceTimer, Series]
) -> None:
    result["metrics"][REFERENCE[timer]] = summarise(other[1])
    result["accounting"]["seconds_to_one_percent"] = {
        "paceline": seconds_to_interval(own[1].samples, own[0].costs_s),
        timer.partition("-")[0]: seconds_to_interval(other[1].samples, other[0].costs_s),
    }
