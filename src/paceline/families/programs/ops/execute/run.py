"""Measures one block of ``execute``: programs in turn, through the timing loop of every other family."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from paceline.families.programs.api import program as api
from paceline.families.programs.core import candidate, client, reported
from paceline.families.programs.core.candidate import Candidate
from paceline.families.programs.core.client import Client
from paceline.families.programs.core.reported import SELF_REPORTED
from paceline.worker.fences.guard import ContractBreachError
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import Limits, Series, measure, summarise

UNCHECKED = "unchecked"
"""The flag of figures of a program that no check has judged."""
NO_CHECK = "exit status 0 after every run; no check was given, so nothing says that its output is right"

SLACK = 1.02
"""How much the memory of a process differs that has not begun its program, from one fork to the next."""


def sealed(operations: object) -> tuple[ModuleType, ...]:
    """Return what techniques must leave as they found it."""
    return (api, candidate, client, reported)


class _Failed(Exception):
    """A program failed while it was timed with others."""

    def __init__(self, failed: Candidate, error: CaseError) -> None:
        super().__init__(error.reason)
        self.failed, self.error = failed, error


class _Timed:
    """A candidate whose failure says whose it is."""

    def __init__(self, timed: Candidate) -> None:
        self.label = timed.label
        self._timed = timed

    def observe(self) -> tuple[float, int]:
        try:
            return self._timed.observe()
        except CaseError as error:
            raise _Failed(self._timed, error) from error


def run_block(session: Session, block: Block) -> None:
    """Time every program of the block, and emit a result or a failure for each.

    A program that fails costs its own case. The rest of the block is then measured again without it, and the program is
    not tried in later launches: what it gave in earlier ones is kept.
    """
    starter = Client(lambda: session.trace.context(session.trace.last_context))
    try:
        ready = [made for case in block.cases if (made := _ready(session, block, case, starter)) is not None]
        while ready:
            watch = Watch(session.device.telemetry)
            try:
                series = _timed(session, block, ready, watch)
            except _Failed as failure:
                _fail(session, block, failure.failed.case, failure.error)
                ready.remove(failure.failed)
                for left in ready:
                    left.observed.clear()
                continue
            for made, item in zip(ready, series, strict=True):
                session.emit_result(block, made.case, _result(session, made, item, watch))
            return
    finally:
        starter.close()


def _timed(session: Session, block: Block, ready: Sequence[Candidate], watch: Watch) -> list[Series]:
    return measure(
        [_Timed(made) for made in ready],
        Limits.of(block.protocol),
        clock_ns=session.device.clock_ns,
        gather=session.control.gather,
        rng=random.Random(session.draw_seed("order", block.block)),
        each_batch=watch.sample,
        launch=session.launch,
    )


def _ready(session: Session, block: Block, case: Case, starter: Client) -> Candidate | None:
    """Make a program ready; in the first launch build it and run it once, untimed. None where that failed."""
    try:
        made = Candidate(
            case=case,
            program=_program(session, block, case),
            client=starter,
            limit_s=float(block.protocol["timeout_s"]),
            begin=lambda stage: session.begin(block, case.label, stage),
        )
        key = f"{block.params['op']}/{block.block}/{case.case_id}"
        if session.earlier_proof(key) is None:
            made.build()
            made.observe()
            made.observed.clear()
            session.tell_proof(key, {"ran": True})
    except CaseError as error:
        _fail(session, block, case, error)
        return None
    return made


def _program(session: Session, block: Block, case: Case) -> api.Program:
    session.begin(block, case.label, str(block.params["op"]))
    try:
        with session.guard.watch():
            made = session.loaded(case).factory(**case.options)
            program = made.program(str(block.params["input"]))
    except (CaseError, ContractBreachError):
        raise
    except Exception as error:
        raise CaseError("crashed", f"cannot be made: {error}") from error
    if not isinstance(program, api.Program):
        raise CaseError("crashed", f"program() gave {type(program).__name__}, and no Program")
    return program


def _fail(session: Session, block: Block, case: Case, error: CaseError) -> None:
    """Report why a program gave nothing; it would fail again, or hang again, in every launch."""
    session.events.emit(
        "case_failed",
        block=block.block,
        case_id=case.case_id,
        label=case.label,
        status=error.status,
        reason=error.reason,
        detail=error.detail,
        quarantine=True,
    )


def _result(session: Session, made: Candidate, series: Series, watch: Watch) -> dict[str, Any]:
    runs = made.observed[len(series.warmup) :]
    flags = [*watch.flags, *([] if made.program.check else [UNCHECKED])]
    absent: dict[str, str] = {}
    peaks = [o.ran.peak_bytes for o in runs]
    floor_bytes = max(o.ran.floor_bytes for o in runs)
    metrics = {
        "wall_time": summarise(series, flags),
        "cpu_time": _samples([o.ran.cpu_s for o in runs], series, flags),
    }
    if min(peaks) > SLACK * floor_bytes:
        metrics["peak_memory"] = _samples(peaks, series, flags)
    else:
        absent["peak_memory"] = (
            f"its processes stay below {floor_bytes / 2**20:.1f} MiB, which the process has that starts them"
        )
    for name in made.metrics:
        found = [o.reported[name] for o in runs]
        figures = [figure for figure in found if isinstance(figure, float)]
        if len(figures) == len(found):
            metrics[name] = _samples(figures, series, [*flags, SELF_REPORTED])
        else:
            absent[name] = next(why for why in found if isinstance(why, str))
    check = made.program.check
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": absent,
        "correctness": {
            "passed": True,
            "oracle": "exit status 0, and its owner's check after every run" if check else NO_CHECK,
            "gate_checks": made.num_runs,
        },
        "accounting": {
            "requested": made.num_runs,
            "ok": made.num_runs,
            "failed": 0,
            "dropped": 0,
            "printed_bytes": max(o.ran.printed_bytes for o in runs),
            "program_sha256": made.provenance(),
            **_shell(session, made),
        },
        "telemetry": watch.facts(),
    }


def _shell(session: Session, made: Candidate) -> dict[str, float]:
    """Return the time that starting the shell takes, where the program runs in one; it is part of the wall time."""
    start_s = made.shell_start_s()
    return {} if start_s is None else {"shell_start_s": start_s}


def _samples(values: Sequence[float], series: Series, flags: Sequence[str]) -> Mapping[str, Any]:
    return {
        "samples": [float(value) for value in values],
        "positions": series.positions,
        "flags": list(flags),
        "stop_reason": series.stop_reason,
    }
