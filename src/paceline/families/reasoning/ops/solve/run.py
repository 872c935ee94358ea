"""Measures one block of ``solve``: the launch's own traces, then techniques one after another.

A technique replays one order of the traces, answers online, is judged, and replays all orders.

Every launch draws other questions and other traces, so that launches are independent replicates; within a launch all
techniques answer the same questions with the same traces.
"""

from __future__ import annotations

import gc
import random
import time
import traceback
from dataclasses import replace
from typing import Any

from paceline.base.errors import PacelineError, UserError
from paceline.families.reasoning.api.requests import Method, OptionError
from paceline.families.reasoning.core.block import recorded
from paceline.families.reasoning.core.block.pool import Pool, draw_pool
from paceline.families.reasoning.core.block.results import Ending, tell
from paceline.families.reasoning.core.block.setting import Archives, Setting
from paceline.families.reasoning.core.block.sources import block_setting
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.core.recordings.replay import MissingTraceError
from paceline.families.reasoning.core.recordings.trace_files import ENDING
from paceline.families.reasoning.core.sealed import sealed
from paceline.families.reasoning.ops.solve import gate
from paceline.families.reasoning.ops.solve.examples import examples
from paceline.families.reasoning.ops.solve.figures import accounting, measured
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.loading import renewed
from paceline.worker.ranks.session import Block, Case, CaseError, ContractBreachError, Session

__all__ = ["run_block", "sealed"]

_clock = time.perf_counter

ORACLE = (
    "answers seen in traces; the launch's own traces, token for token; the same again on what was recorded"
)


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one event for each."""
    tell(session, block, lambda: _answers(session, block))


def _answers(session: Session, block: Block) -> list[tuple[Case, Ending]]:
    with block_setting(session, block) as setting:
        return _answer_all(session, block, setting)


def _answer_all(session: Session, block: Block, setting: Setting) -> list[tuple[Case, Ending]]:
    """Let all techniques answer, in a drawn order."""
    pool, decoded = draw_pool(setting), setting.archives()
    order = list(block.cases)
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    results: list[tuple[Case, Ending]] = []
    for position, case in enumerate(order):
        try:
            result = _answer(session, block, case, setting, pool, decoded)
            result["accounting"]["position"] = position
            results.append((case, result))
        except CaseError as error:
            results.append((case, error))
        except MissingTraceError as error:
            results.append((case, CaseError("unsupported", f"{error}; this point has recorded traces alone")))
        except (PlanError, OptionError, ContractBreachError) as error:
            results.append((case, CaseError("refused", str(error))))
        except UserError as error:  # of a model or of grading: what others have done stays
            results.append((case, CaseError("crashed", str(error))))
        except (MemoryError, PacelineError):
            raise
        except Exception as error:  # of the technique: the others go on with the same questions
            reason = f"{type(error).__name__}: {error}"
            results.append((case, CaseError("crashed", reason, traceback.format_exc(limit=8))))
        gc.collect()
    if setting.recorded_sha256 is None:
        _write_traces(session, block, setting, pool, decoded, results)
    return results


def _write_traces(
    session: Session,
    block: Block,
    setting: Setting,
    pool: Pool,
    decoded: Archives,
    results: list[tuple[Case, Ending]],
) -> None:
    """Leave all traces in a file that goes with the record."""
    session.begin(block, "-", "write traces")
    decoded.absorb(pool.archives)
    path = recorded.FOLDER / f"traces-{session.launch}-{block.block}{ENDING}"
    header = recorded.header_of(setting, pool, suite=block.suite, launch=session.launch, params=block.params)
    digest, problem = recorded.write_traces(path, header, decoded)
    for _, ending in results:
        if isinstance(ending, CaseError):
            continue
        if digest is None:
            ending["absent"]["traces"] = problem
        else:
            ending["artifacts"] = {"traces": path.name}
            ending["accounting"]["kept_traces_sha256"] = digest


def _answer(
    session: Session, block: Block, case: Case, setting: Setting, pool: Pool, decoded: Archives
) -> dict[str, Any]:
    """Let one technique answer all questions, and judge it; what it had decoded is added to the rest.

    Raises:
        CaseError: It was refused, or is wrong.
        PlanError, OptionError, ContractBreachError: It asks for what there is not, or does what it may not.
    """
    session.loaded(case)
    archives = setting.archives() if setting.repeatable else pool.archives

    def make() -> Method:
        method: Method = renewed(case.module, case.technique, block.family)(
            replace(setting.task), **case.options
        )
        return method

    session.begin(block, case.label, "answer")
    with session.guard.watch():
        first = gate.replay(setting, pool, make, 0)
        method = make()
        watch = Watch(session.device.telemetry)
        watch.sample()
        began = _clock()
        finished = setting.run(setting.answering(archives), method)
        seconds = _clock() - began
        watch.sample()
    session.begin(block, case.label, "replay")
    compared = gate.check_traces(setting, pool, finished)
    with session.guard.watch():
        gate.check_replay(setting, make, finished, archives)
        reordered = gate.reorder(setting, pool, make, first)
    decoded.absorb(archives)
    metrics, absent = measured(setting, pool, finished, seconds, reordered)
    kept = {"examples": examples(setting, finished)} if session.launch == 0 else {}
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": absent,
        "ceilings": {"pass_at_all": pool.pass_at_all, "vote_of_all": pool.curve[-1][1]},
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": compared + 2 * len(finished),
            **setting.reading.facts(),
            "model": setting.model.identity,
            "partner": None if setting.partner is None else setting.partner.identity,
            "input_seed": setting.seed,
            "traces_sha256": archives.digest(),
            **({} if setting.recorded_sha256 is None else {"recorded_sha256": setting.recorded_sha256}),
        },
        "accounting": accounting(setting, pool, finished, reordered) | kept,
        "telemetry": watch.facts(),
    }
