"""Measures one block of the training family: gate, training of each technique in turn, evaluation, figures.

Techniques train one after another in a seeded order, each from the same weights on the same batches: what overlaps
communication with later steps must not be helped by the steps of another technique. Launches repeat the block on other
draws of weights and data, so that a launch is also a seed.
"""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING, Any

import torch

from paceline.families.training.api.expert.replica import ITEM, ExpertReplica
from paceline.families.training.core import judging, oracle, point
from paceline.families.training.core.arm import Loop
from paceline.families.training.core.figures import Figures, timed
from paceline.families.training.core.gate import STEPS, Proved, prove
from paceline.families.training.core.parameters import (
    CHECKPOINT,
    CHURN,
    EXPERT_PARALLEL,
    FINE_TUNE,
    PIPELINE_PARALLEL,
)
from paceline.families.training.core.seat import Seat, make_seat
from paceline.families.training.core.setting import (
    Setting,
    compile_shapes,
    compute_seconds,
    local_batches,
    prepare_torch,
)
from paceline.families.training.core.unchanged import passes_are_the_familys
from paceline.families.training.ops.checkpoint import course as checkpointing
from paceline.families.training.ops.churn import scenario as churn
from paceline.families.training.ops.data_parallel.rider import apart, make_rider
from paceline.families.training.ops.expert_inference.reading import crossings
from paceline.families.training.ops.expert_parallel.owners import Owners
from paceline.families.training.ops.expert_parallel.probe import dispatch_seconds
from paceline.families.training.ops.fine_tune import joining
from paceline.families.training.ops.fine_tune.ledger import Ledger
from paceline.families.training.ops.pipeline_parallel import timeline
from paceline.families.training.sealed import sealed
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.telemetry import Watch

if TYPE_CHECKING:
    from paceline.families.training.core.bare_script import BareScript

__all__ = ["run_block", "sealed"]

MEMORY_COUNTS = 3
"""Steps beside the last one after which memory is counted."""


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    if block.params["op"] == CHURN:
        churn.run(session, block)
        return
    session.begin(block, "-", "data")
    try:
        setting = point.setting_of(session, block, point.corpus_of(session, block.params))
        if setting.compiled:
            session.on_all_ranks(lambda: compile_shapes(setting, session))
    except CaseError as error:
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    last = session.rank == session.world_size - 1
    batches = local_batches(
        setting,
        session,
        corrupt=last and block.params["corrupt"] == "last-rank",
        alike=float(block.params["alike"]),
    )
    held_out = torch.from_numpy(
        setting.corpus.held_out(
            session.draw_seed("held out", block.block), int(block.params["eval_batch"]), setting.context + 1
        )
    ).to(torch.int16)
    prepare_torch(setting.device)
    if not gc.get_freeze_count():
        gc.freeze()  # what was imported is not looked through again after every technique: a quarter of a second each
    order = list(block.cases)
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    results: list[tuple[Case, dict[str, Any] | CaseError]] = []
    for position, case in enumerate(order):
        try:
            result = _train(session, block, case, setting, batches, held_out)
            result["accounting"]["position"] = position
            results.append((case, result))
        except CaseError as error:
            results.append((case, error))
        finally:
            gc.collect()
    if setting.folder is not None:
        checkpointing.clear(session, setting.folder)
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
    batches: torch.Tensor,
    held_out: torch.Tensor,
) -> dict[str, Any]:
    """Prove, train and judge one technique.

    Raises:
        CaseError: It was refused, wrong, or did not learn.
    """
    info = session.loaded(case).info
    if setting.absence is not None and info is not None and not info.properties.get("elastic"):
        raise CaseError("unsupported", "its ranks cannot leave or join")
    proved = prove(session, block, case, point.for_proofs(session, block, case, setting))
    seat = make_seat(session, block, case, setting)
    followed = joining.followed(session, block, case, setting, seat)
    session.begin(block, case.label, "train")
    watch = Watch(session.device.telemetry)
    watch.sample()
    loop = _loop(block, case, setting, batches, seat, followed.ledger if followed else None)
    bare = _run(loop, _beside(session, block, case, setting, batches))
    trained = loop.trained
    watch.sample()
    session.begin(block, case.label, "evaluate")
    windows = session.control.gather(trained.windows)
    seeing = judging.seeing(session, trained, some_may_not=block.params["op"] == PIPELINE_PARALLEL)
    judging.check_finite(session, trained, seeing)
    curve, equal = judging.losses(session, case, setting, trained, held_out)
    figures = Figures(
        session,
        block,
        setting,
        trained,
        windows,
        curve,
        seeing=seeing,
        passes_counted=passes_are_the_familys(seat.replica),
        uncounted=judging.uncounted(session, seat, trained),
        bare=bare,
    )
    played = timeline.gather(session, trained.passes)
    metrics = figures.metrics(oracle.divergence(session, trained.weights[-1]))
    metrics |= _transient(setting, proved, figures) | (played.metrics() if played else {})
    metrics |= _fine_tuned(followed, figures, batches) | _of_experts(session, seat, setting, loop)
    metrics |= _saved(session, block, case, setting, loop) | _returned(loop, figures)
    metrics |= apart(session, block, loop.rider, figures.absent)
    if curve and not oracle.learnt(curve):
        figures.absent |= dict.fromkeys(timed(metrics), judging.nothing_learnt(curve))
        metrics = {name: found for name, found in metrics.items() if name not in figures.absent}
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": figures.absent,
        "ceilings": _ceilings(setting),
        "predicted": judging.predicted(seat, case, setting, metrics),
        "correctness": _correctness(block, setting, proved.compared, equal, curve),
        "accounting": _accounting(len(batches), figures, played),
        "telemetry": watch.facts(),
        "clock": {"offset_ns": session.control.clock_offset_ns, "error_ns": session.control.clock_error_ns},
    }


def _fine_tuned(followed: joining.Followed | None, figures: Figures, batches: torch.Tensor) -> dict[str, Any]:
    """Return the metrics of fine-tuning, none elsewhere; what a technique does not have is noted as absent.

    Raises:
        CaseError: See ``Followed.metrics``.
    """
    if figures.block.params["op"] != FINE_TUNE:
        return {}
    found = {"loss_fall": {"samples": [figures.curve[0] - figures.curve[-1]]}}
    found |= followed.metrics(figures.trained, batches) if followed else {}
    figures.absent |= {name: joining.NOT_PROBING for name in joining.FIGURES if name not in found}
    return found


def _transient(setting: Setting, proved: Proved, figures: Figures) -> dict[str, Any]:
    """Return what a step of the proofs had made at most; where nothing could be counted it is noted as absent."""
    if proved.transient_bytes is not None:
        return {"transient_bytes": {"samples": [proved.transient_bytes]}}
    if setting.router is None:
        what = "a compiler" if setting.compiled else "PyTorch's own modules"
        figures.absent["transient_bytes"] = f"{what} may make what no operation shows"
    return {}


def _returned(loop: Loop, figures: Figures) -> dict[str, Any]:
    """Return how long a rank that was away took to catch up; where it did not, that is noted."""
    if loop.back is None:
        return {}
    if loop.back.steps is not None:
        return {"recovery_steps": {"samples": [float(loop.back.steps)]}}
    figures.absent["recovery_steps"] = "the rank that came back did not catch up"
    return {}


def _saved(session: Session, block: Block, case: Case, setting: Setting, loop: Loop) -> dict[str, Any]:
    """Return what is measured where checkpoints are saved, and nothing elsewhere."""
    if loop.course is None:
        return {}
    return checkpointing.judge(session, block, case, setting, loop.course, loop.trained.windows)


def _of_experts(session: Session, seat: Seat, setting: Setting, loop: Loop) -> dict[str, Any]:
    """Return what is measured where ranks share experts, and nothing elsewhere."""
    if not setting.experts:
        return {}
    moved_bytes = 0.0 if loop.owners is None else loop.owners.moved_bytes
    rows = session.control.gather([[moved_bytes, loop.trained.row_messages]])
    moved, sent = (max(rank[0][i] for rank in rows) / setting.steps for i in (0, 1))
    if setting.router is not None:
        hops = crossings(session, seat, setting)
        return {"row_messages": {"samples": [sent]}, "hops": {"samples": [hops]}}
    found: dict[str, Any] = {"moved_bytes": {"samples": [moved]}}
    if isinstance(seat.replica, ExpertReplica):
        found["dispatch_s"] = {"samples": dispatch_seconds(session, seat, setting)}
    return found


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


def _accounting(steps: int, figures: Figures, played: timeline.Timeline | None) -> dict[str, Any]:
    found = {"requested": steps, "ok": steps, "failed": 0, "dropped": 0, "curve": figures.course()}
    return found | {"timeline": played.rows} if played else found


def _loop(
    block: Block, case: Case, setting: Setting, batches: torch.Tensor, seat: Seat, ledger: Ledger | None
) -> Loop:
    session = seat.session
    seat.replica.comm.counters.long_bytes = ITEM * setting.size.width
    counted = random.Random(session.draw_seed("memory", block.block, case.label))
    return Loop(
        seat,
        batches,
        window=int(block.params["window"]),
        evaluations=int(block.params["evaluations"]),
        count_after=frozenset({setting.steps - 1, *counted.sample(range(setting.steps), MEMORY_COUNTS)}),
        extra_s=_extra_seconds(session, block, setting, batches),
        ledger=ledger,
        owners=Owners() if block.params["op"] == EXPERT_PARALLEL else None,
        course=_course(block, seat),
        absence=setting.absence,
        rider=make_rider(session, block, case, seat),
    )


def _course(block: Block, seat: Seat) -> checkpointing.Course | None:
    if block.params["op"] != CHECKPOINT:
        return None
    return checkpointing.Course(seat, window=int(block.params["window"]), steps=int(block.params["steps"]))


def _extra_seconds(session: Session, block: Block, setting: Setting, batches: torch.Tensor) -> float:
    """Return by how much the last rank's computation is longer: its own share's seconds, times the factor less one."""
    factor = float(block.params["slow_factor"])
    if factor == 1 or session.rank != session.world_size - 1:
        return 0.0
    return (factor - 1) * compute_seconds(setting, batches[0])


def _run(loop: Loop, beside: BareScript | None) -> list[float] | None:
    """Train, in turn with a bare script where there is one; return its seconds of each window."""
    if beside is None:
        loop.run()
        return None
    taken = []
    for steps in loop.windows():
        taken.append(beside.window(steps))
        loop.session.control.barrier()  # all ranks begin the loop's next window at once, as they do the script's
    return taken


def _beside(
    session: Session, block: Block, case: Case, setting: Setting, batches: torch.Tensor
) -> BareScript | None:
    if block.params["beside"] == "nothing":
        return None
    from paceline.families.training.core.bare_script import BareScript  # noqa: PLC0415 - calibration alone needs it

    BareScript(session, setting, batches, case.technique).window(
        range(STEPS)
    )  # as the proofs warm up the technique
    return BareScript(session, setting, batches, case.technique)


def _ceilings(setting: Setting) -> dict[str, Any]:
    size, vocabulary = setting.size, setting.corpus.vocabulary
    experts, top_k = setting.experts, setting.top_k
    return {
        "parameters": size.parameters(vocabulary, experts),
        "flops_per_token": size.flops_per_token(vocabulary, setting.context, experts, top_k),
        "entropy_rate": setting.corpus.entropy_rate,
    }
