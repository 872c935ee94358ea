"""Plays one run of training with each technique: a peer is killed in the middle of a step, later another one comes.

Peers are processes of their own, started by the ranks. What is measured is what the ranks see of them; weights that a
peer leaves are evaluated by rank 0 on text that no peer had.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from paceline.base.counting import number_of
from paceline.families.collectives.core.scenarios.hosting import Group, Message, Timeline
from paceline.families.training.api.rounds import num_rounds, round_ends
from paceline.families.training.api.sizes import size_of
from paceline.families.training.core.data.corpus import load
from paceline.families.training.core.loop import judging
from paceline.families.training.core.proofs import oracle
from paceline.families.training.ops.churn.digests import digest_of
from paceline.families.training.ops.churn.judge import OUTER_TOLERANCE, CheckedRun, Rules, of_kind
from paceline.families.training.ops.churn.metrics import CHURN_METRICS
from paceline.families.training.ops.churn.script import LEAST_ROUNDS, Script, draw
from paceline.families.training.ops.churn.setting import rows_of, setting_of
from paceline.worker.ranks.session import Block, Case, CaseError, Session

PARTS = f"{__package__}.part"
"""Module that peers run."""
LIMIT_S = 120.0
"""Longest run after all peers are ready: a group that hangs has then not survived."""
LOSSES = ("eval_loss", "excess_loss")
ORACLE = "every exchange is the outer step on the mean of its members' weights; all begin rounds with equal weights"


def run(session: Session, block: Block) -> None:
    """Play the block's script with each of its techniques and emit one ``result`` event for each."""
    seeds = _seeds(session, block)
    for case in block.cases:
        session.begin(block, case.label, "scenario")
        try:
            session.emit_result(block, case, _play(session, block, case, seeds))
        except CaseError as error:
            session.emit_failure(block, case, error)


def _seeds(session: Session, block: Block) -> dict[str, int]:
    """Draw the block's seeds; weights and text are the same at all points of a launch, disturbed and undisturbed."""
    drawn: dict[str, int] = session.facts.setdefault("seeds of churn", {})
    for name in ("model", "data", "held out"):
        if name not in drawn:
            drawn[name] = session.draw_seed(name, "churn")
    return drawn | {"script": session.draw_seed("script", block.block)}


def _play(session: Session, block: Block, case: Case, seeds: Mapping[str, int]) -> dict[str, Any]:
    loaded = session.loaded(case)
    assert loaded.info is not None
    options = {**loaded.info.options, **case.options}
    rules = _rules(session, block, options, seeds["script"])
    evaluated = _evaluated(block, rules)
    # by this name doctor --clean finds what a killed rank leaves
    with tempfile.TemporaryDirectory(prefix=f"paceline-checkpoints-{os.getpid()}-") as folder:
        config: dict[str, Any] = {
            "family": block.family,
            "operation": block.params["op"],
            "module": case.module,
            "technique": case.technique,
            "options": options,
            "params": dict(block.params),
            "sync_every": rules.sync_every,
            "model_seed": seeds["model"],
            "data_seed": seeds["data"],
            "sketch_seed": session.draw_seed("sketch", block.block, case.label),
            "evaluate_after": evaluated,
            "folder": folder,
        }
        group = Group(session, config, parts=PARTS)
        needs_master = hasattr(sys.modules[loaded.factory.__module__], "master")
        peers = _timeline(session, group, rules.script, needs_master=needs_master)
        checked = CheckedRun(rules, peers)
        curve = _curve(session, block, config, checked, seeds["held out"])
    return _result(block, checked, curve, seeds)


def _rules(session: Session, block: Block, options: Mapping[str, Any], seed: int) -> Rules:
    steps, sync_every = int(block.params["steps"]), int(options["sync_every"])
    rounds = num_rounds(sync_every, steps)
    if rounds < LEAST_ROUNDS:
        raise CaseError(
            "unsupported", f"{steps} steps are {number_of(rounds, 'round')}; {LEAST_ROUNDS} are needed"
        )
    script = draw(
        str(block.params["fault"]),
        random.Random(seed),
        num_peers=session.world_size,
        steps=steps,
        sync_every=sync_every,
        layers=size_of(block.params).layers,
    )
    return Rules(
        num_peers=session.world_size,
        steps=steps,
        sync_every=sync_every,
        outer_rate=float(options["outer_rate"]),
        outer_momentum=float(options["outer_momentum"]),
        script=script,
    )


def _evaluated(block: Block, rules: Rules) -> list[int]:
    """Return after how many steps weights are evaluated: the ends of as many rounds, evenly, the last among them."""
    ends = [step + 1 for step in round_ends(rules.sync_every, rules.steps)]
    count = min(int(block.params["evaluations"]), len(ends))
    return [ends[round(len(ends) * (i + 1) / count) - 1] for i in range(count)]


def _timeline(session: Session, group: Group, script: Script, *, needs_master: bool) -> Timeline:
    """Start all peers, let them train, and return what they said."""
    never = Script(**(asdict(script) | {"victim": -1, "kill_step": -1}))
    told = {"part": "train", "kill": asdict(never)}
    doomed = session.rank == script.victim
    try:
        group.meet(needs_master=needs_master)
        group.start(
            told | ({"kill": asdict(script)} if doomed else {}),
            told if script.victim >= 0 else None,
        )
        own = group.follow(lambda messages: _has_come(messages, script.join_step), limit_s=LIMIT_S)
    finally:
        group.end()
    return group.gather(own)


def _has_come(messages: Sequence[Message], step: int) -> bool:
    return any(m["step"] >= step for m in of_kind(messages, "done"))


def _curve(
    session: Session, block: Block, config: dict[str, Any], checked: CheckedRun, seed: int
) -> dict[str, list[float]]:
    """Return the curve of held-out losses, as a point's page draws it; nothing where survivors did not go on.

    Rank 0 alone has the weights, and tells the others.

    Raises:
        CaseError: ``incorrect``: nothing was learnt, or more than any model could. ``refused``: weights that a peer
            left are not those that it had.
    """
    if not checked.survived:
        return {}
    losses = session.on_all_ranks(lambda: _losses(block, config, checked, seed) if session.rank == 0 else [])
    steps = [0, *config["evaluate_after"]]
    first, *_ = of_kind(checked.peers[0], "round")
    done_ns = {0: int(first["seen_ns"])} | {e.step: e.done_ns[0] for e in checked.exchanges}
    tokens = rows_of(dict(block.params)) * int(block.params["context"])
    read = {0: 0.0}
    for before, e in zip((None, *checked.exchanges), checked.exchanges, strict=False):
        had = before.step if before else 0
        read[e.step] = read[had] + float(tokens * len(e.members) * (e.step - had))
    return {
        "steps": [float(s) for s in steps],
        "tokens": [read[s] for s in steps],
        "seconds": [(done_ns[s] - done_ns[0]) * 1e-9 for s in steps],
        "eval_loss": losses,
    }


def _losses(block: Block, config: dict[str, Any], checked: CheckedRun, seed: int) -> list[float]:
    """Return the held-out losses of what peer 0 left, the untrained weights first."""
    setting = setting_of(config, torch.device("cpu"))
    (left,) = of_kind(checked.peers[0], "weights")
    copies = np.load(left["path"])
    due = {0: of_kind(checked.peers[0], "round")[0]["digest"]} | {e.step: e.digest for e in checked.exchanges}
    wanted = [0, *config["evaluate_after"]]
    if left["steps"] != wanted or [digest_of(c) for c in copies] != [due[step] for step in wanted]:
        raise CaseError("refused", "the weights that peer 0 left are not those that it had")
    model = setting.judge()
    if not np.array_equal(copies[0], torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()):
        raise CaseError("refused", "it changed the weights before the first step")
    held_out = setting.corpus.held_out(seed, int(block.params["eval_batch"]), setting.context + 1)
    text, sizes = torch.from_numpy(held_out), [p.numel() for p in model.parameters()]
    shapes = [p.shape for p in model.parameters()]
    losses = []
    for copy in copies:
        pieces = torch.split(torch.from_numpy(copy), sizes)
        weights = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        losses.append(oracle.held_out_loss(model, weights, text, setting.device))
    if not oracle.learnt(losses):
        raise CaseError("incorrect", judging.nothing_learnt(losses))
    judging.check_possible(losses[-1], setting.corpus.entropy_rate, text[:, 1:].numel())
    return losses


def _result(
    block: Block, checked: CheckedRun, curve: dict[str, list[float]], seeds: Mapping[str, int]
) -> dict[str, Any]:
    corpus = load(str(block.params["data"]))
    rate, script = corpus.entropy_rate, checked.rules.script
    found: dict[str, float] = {"survived": float(checked.survived)}
    if script.victim >= 0:
        joined = checked.join_s()
        found |= {"joined": float(joined is not None), "state_parity": float(checked.parity)}
        recovery = checked.recovery() if checked.survived else None
        if recovery is not None:
            found |= {"kill_recovery_steps": float(recovery[0]), "kill_recovery_s": recovery[1]}
        if joined is not None:
            found["join_s"] = joined
    metrics: dict[str, Any] = {name: {"samples": [value]} for name, value in found.items()}
    if curve:
        losses = curve["eval_loss"]
        metrics["eval_loss"] = {"samples": losses}
        if rate is not None:
            metrics["excess_loss"] = {"samples": [loss - rate for loss in losses]}
            curve["excess_loss"] = [loss - rate for loss in curve.pop("eval_loss")]
    reason = _why_not(checked)
    names = (*LOSSES, *(m.name for m in CHURN_METRICS))
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": {name: reason for name in names if name not in metrics},
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": len(checked.exchanges),
            "error": checked.error,
            "tolerance": OUTER_TOLERANCE,
            "entropy_rate": rate,
            "data_sha256": corpus.fingerprint,
            "input_seed": seeds["data"],
            "model_seed": seeds["model"],
        },
        "accounting": {
            "script": asdict(script),
            "failures": {str(n): text for n, text in checked.failures.items()},
            "members": [[e.step, list(e.members)] for e in checked.exchanges],
            "round_s": checked.round_s(),
            "curve": curve,
        },
    }


def _why_not(checked: CheckedRun) -> str:
    """Say why figures are absent."""
    if checked.rules.script.victim < 0:
        return "nobody was killed, and nobody came"
    failed = [checked.failures[n] for n in checked.survivors if n in checked.failures]
    if not checked.survived:
        return f"the survivors did not finish: {failed[0] if failed else 'they made no progress'}"
    return checked.failures.get(checked.rules.num_peers, "the newcomer took part in no exchange")
