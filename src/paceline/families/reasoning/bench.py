"""Measures one block of the reasoning family: the launch's own traces, then techniques one after another.

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
from paceline.families.reasoning import judging, recorded
from paceline.families.reasoning.pool import Pool, draw_pool
from paceline.families.reasoning.replay import MissingTraceError
from paceline.families.reasoning.requests import Finished, Method, OptionError, Story
from paceline.families.reasoning.sealed import sealed
from paceline.families.reasoning.seat import PlanError
from paceline.families.reasoning.setting import Archives, Setting
from paceline.families.reasoning.sources import block_setting
from paceline.families.reasoning.spec import CALL_TOOLS
from paceline.families.reasoning.tools.bench import run_tools_block
from paceline.families.reasoning.trace_files import ENDING
from paceline.worker.loading import renewed
from paceline.worker.session import Block, Case, CaseError, ContractBreachError, Session
from paceline.worker.telemetry import Watch

__all__ = ["run_block", "sealed"]

_clock = time.perf_counter

NUM_EXAMPLES = 4
"""Questions whose traces a record keeps, of the first launch."""
MAX_TEXT = 4000
"""Characters that a record keeps of a trace."""

ORACLE = (
    "answers seen in traces; the launch's own traces, token for token; the same again on what was recorded"
)


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    session.begin(block, "-", "traces")
    try:
        if block.params["op"] == CALL_TOOLS:
            results = run_tools_block(session, block)
        else:
            with block_setting(session, block) as setting:
                results = _answer_all(session, block, setting)
    except UserError as error:  # of a model or of problems that are not there
        results = [(case, CaseError("crashed", str(error))) for case in block.cases]
    # told at the end: after a process has died the whole block is drawn anew, so that techniques share all questions
    for case, ending in results:
        if isinstance(ending, CaseError):
            session.emit_failure(block, case, ending)
        else:
            session.emit_result(block, case, ending)


def _answer_all(
    session: Session, block: Block, setting: Setting
) -> list[tuple[Case, dict[str, Any] | CaseError]]:
    """Let all techniques answer, in a drawn order."""
    pool, decoded = draw_pool(setting), setting.archives()
    order = list(block.cases)
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    results: list[tuple[Case, dict[str, Any] | CaseError]] = []
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
        _keep(session, block, setting, pool, decoded, results)
    return results


def _keep(
    session: Session,
    block: Block,
    setting: Setting,
    pool: Pool,
    decoded: Archives,
    results: list[tuple[Case, dict[str, Any] | CaseError]],
) -> None:
    """Leave all traces in a file that goes with the record."""
    session.begin(block, "-", "keep")
    decoded.absorb(pool.archives)
    path = recorded.FOLDER / f"traces-{session.launch}-{block.block}{ENDING}"
    header = recorded.header_of(setting, pool, suite=block.suite, launch=session.launch, params=block.params)
    digest, problem = recorded.keep(path, header, decoded)
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
        first = judging.replay(setting, pool, make, 0)
        method = make()
        watch = Watch(session.device.telemetry)
        watch.sample()
        began = _clock()
        finished = setting.run(setting.answering(archives), method)
        seconds = _clock() - began
        watch.sample()
    session.begin(block, case.label, "replay")
    compared = judging.check_traces(setting, pool, finished)
    with session.guard.watch():
        judging.check_replay(setting, make, finished, archives)
        reordered = judging.reorder(setting, pool, make, first)
    decoded.absorb(archives)
    metrics, absent = _metrics(setting, pool, finished, seconds, reordered)
    kept = {"examples": _examples(setting, finished)} if session.launch == 0 else {}
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
        "accounting": _accounting(setting, pool, finished, reordered) | kept,
        "telemetry": watch.facts(),
    }


def _metrics(
    setting: Setting, pool: Pool, finished: list[Finished], seconds: float, reordered: judging.Reordered
) -> tuple[dict[str, Any], dict[str, str]]:
    ledgers = [f.ledger for f in finished]
    samples: dict[str, list[float]] = {
        "accuracy": setting.right(finished),
        "tokens": [float(x.total) for x in ledgers],
        "critical_tokens": [float(x.critical) for x in ledgers],
        "probe_tokens": [float(x.probed) for x in ledgers],
        "work_tokens": [x.work(setting.partner_weight) for x in ledgers],
        "critical_work": [x.critical_work for x in ledgers],
        "judge_tokens": [float(x.reviewed + x.judged) for x in ledgers],
        "cache_tokens": [float(x.peak_cache) for x in ledgers],
        "mean_cache_tokens": [x.mean_cache for x in ledgers],
        "traces": [float(x.traces) for x in ledgers],
        "unanswered": [float(f.answer is None) for f in finished],
        "accuracy_reordered": list(reordered.right),
        "tokens_reordered": list(reordered.spent),
    }
    absent = {}
    if setting.timed:
        samples["question_s"] = [seconds / len(finished)]
        samples["token_s"] = [seconds / max(sum(x.decoded + x.probed for x in ledgers), 1)]
    else:
        absent["question_s"] = absent["token_s"] = (
            "no model decodes while a technique answers: traces were recorded before"
        )
    for name, (value, reason) in {
        "gain_at_equal_tokens": judging.gain(pool, reordered, finished),
        "answers_kept": judging.answers_kept(pool, finished, setting.task.temperature),
        "judge_auroc": judging.judge_auroc(pool, finished),
    }.items():
        if value is None:
            absent[name] = reason
        else:
            samples[name] = [value]
    return {name: {"samples": values} for name, values in samples.items()}, absent


def _accounting(
    setting: Setting, pool: Pool, finished: list[Finished], reordered: judging.Reordered
) -> dict[str, Any]:
    """Return counts, and the course of the plain vote."""
    right: dict[int, list[float]] = {}
    for one, value in zip(setting.asked, setting.right(finished), strict=True):
        right.setdefault(one.level, []).append(value)
    return {
        "requested": len(finished),
        "ok": len(finished),
        "failed": 0,
        "dropped": 0,
        "stopped_traces": sum(f.ledger.stopped for f in finished),
        "forks": sum(f.ledger.forks for f in finished),
        "rounds": sum(f.ledger.rounds for f in finished),
        "forced_tokens": sum(f.ledger.forced for f in finished),
        "forced_by_partner": sum(f.ledger.forced_by_partner for f in finished),
        "merged_tokens": sum(f.ledger.merged for f in finished),
        "partner_tokens": sum(f.ledger.by_partner for f in finished),
        "partner_weight": setting.partner_weight,
        "decoded_for_replays": reordered.decoded,
        "votes": {
            "tokens_reordered": [tokens for tokens, _ in pool.curve],
            "accuracy_reordered": [accuracy for _, accuracy in pool.curve],
        },
        "right_traces": [list(pool.num_right), setting.task.samples],
        "right_by_level": {str(level): [int(sum(v)), len(v)] for level, v in sorted(right.items())},
    }


def _examples(setting: Setting, finished: list[Finished]) -> list[dict[str, Any]]:
    """Return some questions, by their places in the order of levels and by nothing else, with all their traces."""
    ordered = sorted(range(len(setting.asked)), key=lambda number: (setting.asked[number].level, number))
    step = max(len(ordered) // NUM_EXAMPLES, 1)
    return [
        {
            "question": setting.asked[number].question,
            "level": setting.asked[number].level,
            "answer": setting.asked[number].truth,
            "given": finished[number].answer,
            "right": setting.reading.right(number, finished[number].answer),
            "traces": [
                [_ending(setting, number, s), setting.reading.text(s.tokens)[:MAX_TEXT]]
                for s in finished[number].stories
                if s.tokens
            ],
        }
        for number in ordered[step - 1 :: step][:NUM_EXAMPLES]
    ]


def _ending(setting: Setting, number: int, story: Story) -> str:
    if not story.ended:
        return "stopped"
    answer = setting.reading.answer(number, story.tokens)
    return "no answer" if answer is None else f"answers {answer}"
