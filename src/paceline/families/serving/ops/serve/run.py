"""Measures one block of ``serve``: the same calls to an engine under each technique, one after another.

Every launch draws other calls. The engine runs in a process of its own, the client in another; what comes over the wire
is held against a plain forward computation, and the client against its own certificate, before any time is told.
"""

from __future__ import annotations

import random
import time
import traceback
from pathlib import Path
from typing import Any

from paceline.base.errors import PacelineError, PrerequisiteError, UserError
from paceline.families.serving.core.client_figures import accounting
from paceline.families.serving.core.engine.reference import Reference
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.findings.certificate import SAYS_NOTHING, certify
from paceline.families.serving.core.load.log.entries import Log, write_log
from paceline.families.serving.core.load.log.outcomes import outcomes_of
from paceline.families.serving.core.load.processes import AHEAD_S, SOON_S, run_load
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.model_sizes import FIRST_TOKEN, model_of
from paceline.families.serving.core.workloads.drawn import AT_ONCE, CLOSED, draw_workload
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.ops.serve.figures import figures
from paceline.families.serving.ops.serve.gate import check_answers
from paceline.families.serving.ops.serve.prefixes import most_hits
from paceline.families.serving.ops.serve.served import EngineProcess
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.session import Block, Case, CaseError, Session

WARM_CALLS = 4
WARM_CONNECTIONS = 16
MODEL_NAME = "paceline"
ORACLE = "every token of every answer against a plain forward computation without a cache, in float64"
SLACK_S = 120.0
"""Beyond the schedule's end, for a technique that is slow."""


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    if session.rank != 0:
        return
    seed = session.draw_seed("calls", block.block)
    model = model_of(block.params, seed)
    try:
        workload = draw_workload(block.params, int(model["vocab"]), seed)
    except UserError as error:  # of a trace
        for case in block.cases:
            session.emit_failure(block, case, CaseError("unsupported", str(error)))
        return
    reference = Reference(model)
    order = list(block.cases)
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    for position, case in enumerate(order):
        try:
            result = _serve(session, block, case, model, workload, reference)
            result["accounting"]["position"] = position
            session.emit_result(block, case, result)
        except CaseError as error:
            session.emit_failure(block, case, error)
        except PrerequisiteError as error:
            session.emit_failure(block, case, CaseError("unsupported", str(error)))
        except (MemoryError, PacelineError):
            raise
        except Exception as error:  # of one technique's engine: the others go on with the same calls
            detail = traceback.format_exc(limit=8)
            reason = f"{type(error).__name__}: {error}"
            session.emit_failure(block, case, CaseError("crashed", reason, detail))


def _serve(
    session: Session,
    block: Block,
    case: Case,
    model: dict[str, Any],
    workload: Workload,
    reference: Reference,
) -> dict[str, Any]:
    """Serve the workload under one technique and judge what came.

    Raises:
        CaseError: The technique was refused, failed or is wrong, or the run says nothing of it.
    """
    session.loaded(case)
    params = block.params
    engine = {k: params[k] for k in ("block_size", "num_blocks", "max_batch", "token_budget")}
    log_path = Path.cwd() / f"engine-{session.launch}-{block.block}-{case.case_id}.log"
    technique = (case.module, case.technique, case.options)
    session.begin(block, case.label, "serve")
    with EngineProcess(
        technique, model=model, engine=engine, device=session.device.torch_type, log=log_path
    ) as served:
        _load(served, _warm_up(model, params), params, ahead_s=SOON_S)
        before = served.counters()
        if params["arrivals"] == AT_ONCE:
            # A batch that is known as a whole: a scheduler that plans over all of it must not see a queue that fills.
            served.hold(sum(not call.after for call in workload.calls))
        watch = Watch(session.device.telemetry)
        watch.sample()
        log = _load(served, workload, params)
        watch.sample()
        after = served.counters()
        served.check()
    session.begin(block, case.label, "judge")
    outcomes = outcomes_of(log)
    counters = {name: after[name] - before.get(name, 0.0) for name in after}
    prompts, rounding = check_answers(reference, workload, outcomes)
    certificate = certify(log, outcomes)
    if not certificate.valid:
        raise CaseError("invalid", SAYS_NOTHING + "; ".join(certificate.problems))
    metrics, absent = figures(outcomes, {n: len(p) for n, p in prompts.items()}, params, counters)
    most = most_hits(prompts.values(), int(params["block_size"]))
    if most:
        metrics["prefix_reuse"] = {"samples": [counters["prefix_hit_tokens"] / most]}
    else:
        absent["prefix_reuse"] = "no two prompts begin alike"
    kept = _write_log(log, session, block, case)
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": absent,
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": sum(o.ok for o in outcomes),
            **rounding,
        },
        "accounting": accounting(outcomes, counters) | {"client": certificate.facts()} | trace_facts(params),
        "artifacts": {"load": kept},
        "telemetry": watch.facts(),
    }


def _load(served: EngineProcess, workload: Workload, params: Any, *, ahead_s: float = AHEAD_S) -> Log:
    last_s = max((c.at_s or 0.0 for c in workload.calls), default=0.0)
    limits = Limits(call_s=last_s + SLACK_S, silence_s=SLACK_S, run_s=last_s + 2 * SLACK_S)
    warm = min(
        int(params["concurrency"]) if params["arrivals"] == CLOSED else WARM_CONNECTIONS, len(workload.calls)
    )
    return run_load(served.url, MODEL_NAME, workload, limits=limits, warm=warm, ahead_s=ahead_s)


def _warm_up(model: dict[str, Any], params: Any) -> Workload:
    """Return a few calls of the point's shape, whose tokens nobody else asks for."""
    rng = random.Random(time.time_ns())
    length = int(params["prompt_tokens"])
    prompts = [
        tuple(rng.randrange(FIRST_TOKEN, int(model["vocab"])) for _ in range(length))
        for _ in range(WARM_CALLS)
    ]
    calls = [Call(number=n, prompt=p, output_tokens=8, at_s=0.0) for n, p in enumerate(prompts)]
    return Workload(calls=tuple(calls))


def _write_log(log: Log, session: Session, block: Block, case: Case) -> str:
    """Leave the raw log in a file that goes with the record."""
    folder = Path.cwd() / "artifacts"
    folder.mkdir(exist_ok=True)
    path = folder / f"load-{session.launch}-{block.block}-{case.case_id}.jsonl.gz"
    write_log(path, log)
    return path.name
