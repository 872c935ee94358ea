"""Measures one block of the training family: gate, training of each technique in turn, evaluation, figures.

Techniques train one after another in a seeded order, each from the same weights on the same batches: what overlaps
communication with later steps must not be helped by the steps of another technique. Launches repeat the block on other
draws of weights and data, so that a launch is also a seed.
"""

from __future__ import annotations

import gc
import math
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

from paceline.families.training import corpus, oracle
from paceline.families.training.arm import Loop, Setting, Trained, local_batches, make_replica
from paceline.families.training.figures import ROW, Figures
from paceline.families.training.gate import prove
from paceline.families.training.replica import Cost, Replica
from paceline.families.training.sizes import SIZES
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.telemetry import Watch

if TYPE_CHECKING:
    from paceline.families.training.bare_script import BareScript

ORACLE = "held-out loss falls; exact techniques equal one process on the whole batch"


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    session.begin(block, "-", "data")
    try:
        setting = _setting(session, block, _corpus(session, str(block.params["data"])))
    except CaseError as error:
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    batches = local_batches(setting, session)
    held_out = torch.from_numpy(
        setting.corpus.held_out(
            session.draw_seed("held out", block.block), int(block.params["eval_batch"]), setting.context + 1
        )
    ).to(torch.int16)
    order = list(block.cases)
    random.Random(session.draw_seed("order", block.block)).shuffle(order)
    for position, case in enumerate(order):
        try:
            result = _train(session, block, case, setting, batches, held_out)
        except CaseError as error:
            session.emit_failure(block, case, error)
            continue
        finally:
            gc.collect()
        result["accounting"]["position"] = position
        session.emit_result(block, case, result)


def _corpus(session: Session, data: str) -> corpus.Corpus:
    """Load the data on all ranks.

    Raises:
        CaseError: ``invalid``, on all ranks: some rank cannot read it, or ranks read different data.
    """
    found, trouble = None, None
    try:
        found = corpus.load(data)
    except CaseError as error:
        trouble = error.reason
    problem = session.control.first_problem(trouble)
    if problem is not None or found is None:
        raise CaseError("invalid", problem or "no data")
    if len(set(session.control.gather_text(found.fingerprint))) > 1:
        raise CaseError("invalid", f"data: ranks read different text from '{data}'")
    return found


def _setting(session: Session, block: Block, found: corpus.Corpus) -> Setting:
    params = block.params
    return Setting(
        corpus=found,
        size=str(params["size"]),
        context=int(params["context"]),
        batch_size=int(params["batch"]),
        steps=int(params["steps"]),
        optimizer=str(params["optimizer"]),
        peak_rate=float(params["learning_rate"]),
        warmup_steps=int(params["warmup_steps"]),
        device=torch.device(session.device.torch_type),
        model_seed=session.draw_seed("model", block.block),
        data_seed=session.draw_seed("data", block.block),
    )


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
    params = block.params
    proved = prove(session, block, case, setting)
    replica = make_replica(session, block, case, setting)
    session.begin(block, case.label, "train")
    slow = float(params["slow_factor"]) if session.rank == session.world_size - 1 else 1.0
    watch = Watch(session.device.telemetry)
    watch.sample()
    loop = Loop(
        session,
        replica,
        batches,
        window=int(params["window"]),
        evaluations=int(params["evaluations"]),
        slow_factor=slow,
    )
    trained, beside = loop.trained, _beside(session, block, case, setting, batches)
    bare = [beside.window(steps) for steps in loop.windows()] if beside else None
    if bare is None:
        loop.run()
    watch.sample()
    session.begin(block, case.label, "evaluate")
    windows = session.control.gather(trained.windows)
    _check_finite(windows)
    curve, equal = _judge(session, case, setting, trained, held_out)
    figures = Figures(session, block, setting, trained, windows, curve, bare)
    return {
        "status": "ok",
        "metrics": figures.metrics(oracle.divergence(session, trained.weights[-1])),
        "absent": figures.absent,
        "ceilings": _ceilings(setting),
        "predicted": _predicted(replica, case, setting.steps),
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": proved,
            "replicas_equal": equal,
            "entropy_rate": setting.corpus.entropy_rate,
            "data_sha256": setting.corpus.fingerprint,
            "input_seed": setting.data_seed,
            "model_seed": setting.model_seed,
        },
        "accounting": {
            "requested": len(batches),
            "ok": len(batches),
            "failed": 0,
            "dropped": 0,
            "curve": figures.course(),
        },
        "telemetry": watch.facts(),
        "clock": {"offset_ns": session.control.clock_offset_ns, "error_ns": session.control.clock_error_ns},
    }


def _beside(
    session: Session, block: Block, case: Case, setting: Setting, batches: torch.Tensor
) -> BareScript | None:
    if block.params["beside"] == "nothing":
        return None
    from paceline.families.training.bare_script import BareScript  # noqa: PLC0415 - calibration alone needs it

    return BareScript(session, setting, batches, case.technique)


def _judge(
    session: Session, case: Case, setting: Setting, trained: Trained, held_out: torch.Tensor
) -> tuple[list[float], bool]:
    """Return the held-out losses of all copies of the weights, and whether ranks always held the same ones.

    Raises:
        CaseError: ``incorrect``: replicas differ that should not, or nothing was learnt.
    """
    info = session.loaded(case).info
    assert info is not None
    equal = oracle.digests(session, trained.weights)
    if info.properties.get("replicas") == "identical" and not all(equal):
        first = trained.evaluated[equal.index(False)]
        raise CaseError("incorrect", f"ranks hold different weights after step {first}")
    curve = oracle.losses(session, setting.model(), trained.weights, held_out, shared=all(equal))
    if not 1 - curve[-1] / curve[0] >= oracle.LEAST_FALL:
        text = f"nothing was learnt: held-out loss {curve[0]:.4g} → {curve[-1]:.4g} nats"
        raise CaseError("incorrect", text)
    return curve, all(equal)


def _check_finite(windows: list[list[list[float]]]) -> None:
    for rank, rows in enumerate(windows):
        for number, row in enumerate(rows):
            if not math.isfinite(row[ROW.index("loss")]):
                raise CaseError(
                    "incorrect", f"diverged: rank {rank}'s loss is not finite in window {number + 1}"
                )


def _predicted(replica: Replica, case: Case, steps: int) -> dict[str, float] | None:
    """Return the technique's closed forms, averaged over steps; None where it has none.

    Raises:
        CaseError: The module has no ``cost`` function.
    """
    function = getattr(sys.modules[type(replica).__module__], "cost", None)
    if function is None:
        raise CaseError("refused", "the technique's module defines no cost(task, **options)")
    found = function(replica.task, **case.options)
    if found is None:
        return None
    assert isinstance(found, Cost)
    return {
        "wire_bytes": found.sent_bytes / steps,
        "peak_bytes": float(found.peak_bytes),
        "messages": found.messages / steps,
    }


def _ceilings(setting: Setting) -> dict[str, Any]:
    size, vocabulary = SIZES[setting.size], setting.corpus.vocabulary
    return {
        "parameters": size.parameters(vocabulary),
        "flops_per_token": size.flops_per_token(vocabulary, setting.context),
        "entropy_rate": setting.corpus.entropy_rate,
    }
