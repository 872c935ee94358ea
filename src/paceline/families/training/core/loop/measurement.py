"""Measures one block of the training family: gate, training of each technique in turn, evaluation, figures.

Techniques train one after another in a seeded order, each from the same weights on the same batches: what overlaps
communication with later steps must not be helped by the steps of another technique. Launches repeat the block on other
draws of weights and data, so that a launch is also a seed.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from paceline.families.training.core.data import point
from paceline.families.training.core.data.setting import (
    Setting,
    compile_shapes,
    compute_seconds,
    prepare_torch,
)
from paceline.families.training.core.loop import judging
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.figures import Figures, timed
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.loop.training import Loop
from paceline.families.training.core.loop.unchanged import passes_are_the_familys
from paceline.families.training.core.planning.metrics import experts_of, flops_per_token
from paceline.families.training.core.planning.parameters import NONE
from paceline.families.training.core.proofs import oracle
from paceline.families.training.core.proofs.gate import STEPS, Proved
from paceline.families.training.core.proofs.sandbox import make_sandbox
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.session import Block, Case, CaseError, Session

if TYPE_CHECKING:
    from paceline.families.training.core.loop.bare_script import BareScript

MEMORY_COUNTS = 3
"""Steps beside the last one after which memory is counted."""


def run_block(session: Session, block: Block, strategy: Strategy) -> None:
    """Train all techniques of a block and emit one ``result`` event for each.

    Args:
        session: The rank.
        block: The block.
        strategy: What its operation does otherwise.
    """
    session.begin(block, "-", "data")
    try:
        found = point.corpus_of(session, block.params, strategy.load)
        setting = strategy.prepare(session, block, point.setting_of(session, block, found))
        if setting.compiled:
            session.on_all_ranks(lambda: compile_shapes(setting, session))
    except CaseError as error:
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    batches = strategy.batches(session, block, setting)
    held_out = setting.held_out(session.draw_seed("held out", block.block), int(block.params["eval_batch"]))
    # Once, before techniques: the first of them must not pay for what torch does once in a process.
    prepare_torch(setting.device)
    if not gc.get_freeze_count():
        gc.freeze()  # what was imported is not looked through again after every technique: a quarter of a second each
    order = list(block.cases)
    # Drawn anew in each launch: a drift of the machine then falls on all techniques alike over launches.
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    results: list[tuple[Case, dict[str, Any] | CaseError]] = []
    for position, case in enumerate(order):
        try:
            result = _train(session, block, case, setting, strategy, batches, held_out)
            result["accounting"]["position"] = position
            results.append((case, result))
        except CaseError as error:
            session.guard.forget()  # what it replaced is not held against the next one
            results.append((case, error))
        finally:
            # In finally: a technique that failed must not leave its memory to the next one's counts.
            gc.collect()
    strategy.clear(session, setting)
    strategy.together(block, results)
    # told at the end: after a crash the whole block is drawn anew, so that all techniques share weights and data
    for case, ending in results:
        if isinstance(ending, CaseError):
            session.emit_failure(block, case, ending)
        else:
            session.emit_result(block, case, ending)


def _train(
    session: Session,
    block: Block,
    case: Case,
    setting: Setting,
    strategy: Strategy,
    batches: Tensor,
    held_out: Tensor,
) -> dict[str, Any]:
    """Prove, train and judge one technique.

    Raises:
        CaseError: It was refused, wrong, or did not learn.
    """
    # Before the technique that is timed is made: proofs warm caches and allocators with another replica.
    proved = strategy.prove(session, block, case, point.for_proofs(session, block, case, setting))
    if session.device.torch_type != "cpu":
        # What proofs have made and only cycles hold would stand beside the technique in the device's memory.
        gc.collect()
    trial = _trial(session, block, case, setting, batches)
    callbacks = strategy.callbacks(trial)
    session.begin(block, case.label, "train")
    watch = Watch(session.device.telemetry)
    watch.sample()
    loop = _loop(trial, callbacks)
    bare = _run(loop, _reference_script(session, block, case, setting, batches))
    watch.sample()
    session.begin(block, case.label, "evaluate")
    windows = session.control.gather(loop.trained.windows)
    seeing = judging.seeing(session, loop.trained, some_may_not=strategy.some_see_no_loss)
    # Before anything is averaged: one NaN would make every rank's figures NaN, and hide where it came from.
    judging.check_finite(session, loop.trained, seeing)
    curve, equal = strategy.losses(session, case, setting, loop.trained, held_out)
    figures = Figures(
        session,
        block,
        setting,
        loop.trained,
        windows,
        curve,
        seeing=seeing,
        passes_counted=passes_are_the_familys(trial.sandbox.replica, strategy.passes_by),
        uncounted=judging.uncounted(session, trial.sandbox, loop.trained),
        bare=bare,
    )
    found = _result(trial, figures, strategy, proved, callbacks)
    found["correctness"] = _correctness(block, setting, proved.compared, equal, curve)
    return found | {
        "telemetry": watch.facts(),
        "clock": {"offset_ns": session.control.clock_offset_ns, "error_ns": session.control.clock_error_ns},
    }


def _result(
    trial: Trial, figures: Figures, strategy: Strategy, proved: Proved, callbacks: Sequence[Callback]
) -> dict[str, Any]:
    """Return what was measured, and what it is held against.

    Raises:
        CaseError: ``incorrect``: what was trained is not what it should be, or costs what its closed form does not say.
    """
    curve = figures.curve
    metrics = figures.metrics(oracle.divergence(trial.session, figures.trained.weights[-1]))
    metrics |= _transient(proved, figures)
    outcome = Outcome(trained=figures.trained, windows=figures.windows, curve=curve, absent=figures.absent)
    for callback in callbacks:
        metrics |= callback.metrics(outcome)
    # Times of a run that learnt nothing are worth nothing: it can be as fast as it likes. Losses and bytes still count.
    if curve and not oracle.learnt(curve):
        figures.absent |= dict.fromkeys(timed(metrics, strategy.metrics), judging.nothing_learnt(curve))
        metrics = {name: found for name, found in metrics.items() if name not in figures.absent}
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": figures.absent,
        "ceilings": _ceilings(trial.block, trial.setting),
        "predicted": judging.predicted(trial.sandbox, trial.case, trial.setting, metrics),
        "accounting": _accounting(len(trial.batches), figures, callbacks),
    }


def _trial(session: Session, block: Block, case: Case, setting: Setting, batches: Tensor) -> Trial:
    """Make a technique, and draw after which steps memory is counted."""
    evaluations = int(block.params["evaluations"])
    # A technique cannot foresee the draw, so it cannot free for the count what it holds otherwise.
    counted = random.Random(session.draw_seed("memory", block.block, case.label))
    return Trial(
        session=session,
        block=block,
        case=case,
        setting=setting,
        sandbox=make_sandbox(session, block, case, setting),
        batches=batches,
        evaluate_after=frozenset(round(len(batches) * (i + 1) / evaluations) for i in range(evaluations)),
        count_after=frozenset({setting.steps - 1, *counted.sample(range(setting.steps), MEMORY_COUNTS)}),
    )


def _loop(trial: Trial, callbacks: Sequence[Callback]) -> Loop:
    return Loop(
        trial.sandbox,
        trial.batches,
        window=int(trial.block.params["window"]),
        evaluate_after=trial.evaluate_after,
        count_after=trial.count_after,
        extra_s=_extra_seconds(trial.session, trial.block, trial.setting, trial.batches),
        absence=trial.setting.absence,
        callbacks=callbacks,
    )


def _transient(proved: Proved, figures: Figures) -> dict[str, Any]:
    """Return what a step of the proofs had made at most; where nothing could be counted it is noted as absent."""
    if proved.transient_bytes is not None:
        return {"transient_bytes": {"samples": [proved.transient_bytes]}}
    if proved.uncounted is not None:
        figures.absent["transient_bytes"] = proved.uncounted
    return {}


def _correctness(
    block: Block, setting: Setting, proved: int, equal: bool, curve: list[float]
) -> dict[str, Any]:
    return {
        "passed": True,
        "oracle": judging.held_to(block.params, setting, curve, proved),
        "gate_checks": proved,
        "replicas_equal": equal,
        "learnt": oracle.learnt(curve) if curve else None,
        "entropy_rate": setting.corpus.entropy_rate,
        "data_sha256": setting.corpus.fingerprint,
        "input_seed": setting.data_seed,
        "model_seed": setting.model_seed,
    }


def _accounting(steps: int, figures: Figures, callbacks: Sequence[Callback]) -> dict[str, Any]:
    found = {"requested": steps, "ok": steps, "failed": 0, "dropped": 0, "curve": figures.loss_curve()}
    for callback in callbacks:
        found |= callback.accounting()
    return found


def _extra_seconds(session: Session, block: Block, setting: Setting, batches: Tensor) -> float:
    """Return by how much the last rank's computation is longer: its own share's seconds, times the factor less one."""
    factor = float(block.params["slow_factor"])
    if factor == 1 or session.rank != session.world_size - 1:
        return 0.0
    # Asleep and not computing longer: a slow rank must not take cores from the others.
    return (factor - 1) * compute_seconds(setting, batches[0])


def _run(loop: Loop, script: BareScript | None) -> list[float] | None:
    """Train, in turn with a bare script where there is one; return its seconds of each window."""
    if script is None:
        loop.run()
        return None
    taken = []
    # In turn, window by window, so that both meet the same machine.
    for steps in loop.windows():
        taken.append(script.window(steps))
        loop.session.control.barrier()  # all ranks begin the loop's next window at once, as they do the script's
    return taken


def _reference_script(
    session: Session, block: Block, case: Case, setting: Setting, batches: Tensor
) -> BareScript | None:
    if block.params["reference_timer"] == NONE:
        return None
    from paceline.families.training.core.loop.bare_script import BareScript  # noqa: PLC0415 - calibration alone needs it

    BareScript(session, setting, batches, case.technique).window(
        range(STEPS)
    )  # as the proofs warm up the technique
    return BareScript(session, setting, batches, case.technique)


def _ceilings(block: Block, setting: Setting) -> dict[str, Any]:
    return {
        "parameters": setting.num_parameters(experts_of(block.params).get("experts", 0)),
        "flops_per_token": flops_per_token(block.params),
        "entropy_rate": setting.corpus.entropy_rate,
    }
