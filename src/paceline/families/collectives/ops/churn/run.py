"""All-reduces in a group that loses a peer and gains another: survival, recovery time, parity of state.

Script: n peers reduce step after step. In one step a peer is killed with SIGKILL while it sends its m-th tensor; later
a newcomer joins. Who dies, in which step and at which message follow from the seed. Every peer checks every sum against
the inputs of the members that the technique names; all keep a state that must end bit-identical.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

from paceline.families.collectives.core.planning.sizes import element_count
from paceline.families.collectives.core.scenarios.hosting import Group, Message, Timeline
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import median

PARTS = f"{__package__}.part"
LIMIT_S = 25.0
"""Longest scenario after all peers are ready: a group that hangs has then not survived."""


def run_block(session: Session, block: Block) -> None:
    """Play the script once with each technique and emit one ``result`` event for each."""
    for case in block.cases:
        session.begin(block, case.label, "scenario")
        run_case(session, block, case)


def run_case(session: Session, block: Block, case: Case) -> None:
    """Play the script once with one technique and emit its result."""
    try:
        session.emit_result(block, case, _play(session, block, case))
    except CaseError as error:
        session.emit_failure(block, case, error)


def _play(session: Session, block: Block, case: Case) -> dict[str, Any]:
    loaded = session.loaded(case)
    seed = session.draw_seed("churn", block.block, case.label) % (1 << 31)
    rng = random.Random(seed)
    size, steps = session.world_size, int(block.params["steps"])
    script = {
        "victim": rng.randrange(1, size),
        "kill_step": steps // 3,
        "kill_message": rng.randrange(0, 2 * (size - 1)),
        "join_step": steps * 2 // 3,
    }
    config: dict[str, Any] = {
        "family": block.family,
        "operation": block.params["op"],
        "module": case.module,
        "technique": case.technique,
        "count": element_count(block.params),
        "seed": seed,
        "steps": steps,
    }
    group = Group(session, config, parts=PARTS)
    told = {"part": "churn", "kill_step": -1, "kill_message": script["kill_message"]}
    doomed = session.rank == script["victim"]
    try:
        group.meet(needs_master=hasattr(sys.modules[loaded.factory.__module__], "master"))
        group.start({**told, "kill_step": script["kill_step"]} if doomed else told, told)
        own = group.follow(lambda messages: _done_from(messages, script["join_step"]), limit_s=LIMIT_S)
    finally:
        group.end()
    return _judge(session, block, script, group.gather(own), seed)


def _done_from(messages: Sequence[Message], step: int) -> bool:
    """Tell whether a peer has come to a step."""
    return any(m["step"] >= step for m in _dones(messages))


def _judge(
    session: Session, block: Block, script: dict[str, int], peers: Timeline, seed: int
) -> dict[str, Any]:
    """Work out the metrics from all ranks' observations (the same on every rank)."""
    wrong = [m["reason"] for messages in peers.values() for m in messages if m["kind"] == "wrong"]
    if wrong:
        raise CaseError("incorrect", str(wrong[0]))
    failures = {n: m["reason"] for n, ms in peers.items() for m in ms if m["kind"] == "failed"}
    early = [n for n, ms in peers.items() if n != session.world_size and not _done(ms, 0)]
    if early:
        raise CaseError("crashed", f"peer {early[0]} did no step: {failures.get(early[0], 'no message')}")
    return _metrics(session, block, script, peers, failures, seed)


def _metrics(
    session: Session,
    block: Block,
    script: dict[str, int],
    peers: Timeline,
    failures: dict[int, str],
    seed: int,
) -> dict[str, Any]:
    newcomer, victim, kill_step = session.world_size, script["victim"], script["kill_step"]
    survivors = [n for n in range(session.world_size) if n != victim]
    deaths = [m["seen_ns"] for m in peers[victim] if m["kind"] == "died"]
    if not deaths:
        raise CaseError("invalid", "the victim did not die: the fault did not strike")
    fault_free = median(
        [max(_duration(peers[n], step) for n in range(session.world_size)) for step in range(1, kill_step)]
    )
    last = int(block.params["steps"]) - 1
    survived = all(_done(peers[n], last) for n in survivors) and _members_agree(peers, survivors)
    hashes = {m["sha256"] for n in (*survivors, newcomer) for m in peers[n] if m["kind"] == "state"}
    states = sum(1 for n in (*survivors, newcomer) for m in peers[n] if m["kind"] == "state")
    parity = survived and len(hashes) == 1 and states == len(survivors) + 1
    joined = survived and any(newcomer in m["members"] for n in survivors for m in _dones(peers[n]))
    metrics: dict[str, Any] = {
        "fault_free_s": {"samples": [fault_free]},
        "survived": {"samples": [float(survived)]},
        "state_parity": {"samples": [float(parity)]},
        "joined": {"samples": [float(joined)]},
    }
    absent: dict[str, str] = {}
    if survived:
        finished = max(m["seen_ns"] for n in survivors for m in _dones(peers[n]) if m["step"] == kill_step)
        recovery = max((finished - deaths[0]) * 1e-9, 0.0)
        metrics["recovery_s"] = {"samples": [recovery]}
        metrics["recovery_steps"] = {"samples": [recovery / fault_free]}
        metrics["resent_bytes"] = {"samples": [float(_resent(peers, survivors, kill_step))]}
    else:
        reason = next((failures[n] for n in survivors if n in failures), "survivors made no progress")
        for name in ("recovery_s", "recovery_steps", "resent_bytes"):
            absent[name] = f"the survivors did not finish: {reason}"
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": absent,
        "correctness": {
            "passed": True,
            "oracle": "every sum equals the members' inputs, exactly; SHA-256 of the final states",
            "gate_seeds": [seed],
        },
        "accounting": {"script": script, "failures": {str(k): v for k, v in failures.items()}},
    }


def _dones(messages: Sequence[Message]) -> list[Message]:
    return [m for m in messages if m["kind"] == "done"]


def _done(messages: Sequence[Message], step: int) -> bool:
    return any(m["step"] == step for m in _dones(messages))


def _duration(messages: Sequence[Message], step: int) -> float:
    begin = next(m["seen_ns"] for m in messages if m["kind"] == "begin" and m["step"] == step)
    done = next(m["seen_ns"] for m in _dones(messages) if m["step"] == step)
    return float(done - begin) * 1e-9


def _members_agree(peers: Timeline, survivors: list[int]) -> bool:
    """Every survivor names the same members for every step, and all survivors are among them."""
    by_step: dict[int, set[tuple[int, ...]]] = {}
    for n in survivors:
        for m in _dones(peers[n]):
            by_step.setdefault(m["step"], set()).add(tuple(sorted(m["members"])))
    return all(len(found) == 1 and set(survivors) <= set(next(iter(found))) for found in by_step.values())


def _resent(peers: Timeline, survivors: list[int], kill_step: int) -> int:
    """Return what survivors sent in the struck step beyond what the same members sent in the next one."""
    extra = 0
    for n in survivors:
        moved = {m["step"]: int(m["bytes"]) for m in _dones(peers[n])}
        extra += max(moved.get(kill_step, 0) - moved.get(kill_step + 1, 0), 0)
    return extra
