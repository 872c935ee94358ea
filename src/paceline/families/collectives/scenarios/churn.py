"""All-reduces in a group that loses a peer and gains another: survival, recovery time, parity of state.

Script: n peers reduce step after step. In one step a peer is killed with SIGKILL while it sends its m-th tensor; later
a newcomer joins. Who dies, in which step and at which message follow from the seed. Every peer checks every sum against
the inputs of the members that the technique names; all keep a state that must end bit-identical.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

from paceline.families.collectives.scenarios.peers import PeerProcess, interface_address
from paceline.families.collectives.spec import element_count
from paceline.worker.session import Block, Case, CaseError, Session
from paceline.worker.timing import median

READY_S = 60.0
LIMIT_S = 25.0
"""Longest scenario after all peers are ready: a group that hangs has then not survived."""


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
        "module": case.module,
        "technique": case.technique,
        "job": str(Path.cwd()),
        "num_peers": size,
        "count": element_count(block.params),
        "seed": seed,
        "steps": steps,
        "interface": session.interface,
        "host": interface_address(session.interface),
    }
    has_master = hasattr(sys.modules[loaded.factory.__module__], "master")
    peers: list[PeerProcess] = []
    try:
        shared = _meet(session, config, peers, needs_master=has_master)
        _start_peers(session, config, peers, script, shared)
        timeline = _follow(session, peers, script)
    finally:
        for peer in peers:
            peer.end()
    return _judge(session, block, script, timeline, seed)


def _log(session: Session, name: str) -> Path:
    return Path("logs") / f"peer-{session.launch}-{session.rank}-{name}.log"


def _meet(
    session: Session, config: dict[str, Any], peers: list[PeerProcess], *, needs_master: bool
) -> dict[str, Any]:
    """Start the master where there is one, choose the fixed group's store, and tell all ranks."""
    shared: dict[str, Any] = {}
    if session.rank == 0:
        with socket.socket() as probe:
            probe.bind((config["host"], 0))
            shared["store"] = [config["host"], probe.getsockname()[1]]
        if needs_master:
            master = PeerProcess({**config, "part": "master", "peer": -1}, _log(session, "master"))
            peers.append(master)
            found = master.wait_for("listening", READY_S)
            shared["master"] = found["address"] if found else None
    text = session.control.gather_text(json.dumps(shared))[0]
    told: dict[str, Any] = json.loads(text)
    if needs_master and told.get("master") is None:
        raise CaseError("crashed", "the technique's master did not start")
    return told


def _start_peers(
    session: Session,
    config: dict[str, Any],
    peers: list[PeerProcess],
    script: dict[str, int],
    shared: dict[str, Any],
) -> None:
    """Start this rank's peer, and on rank 0 the newcomer; wait until all are ready."""
    doomed = session.rank == script["victim"]
    own = {
        **config,
        **shared,
        "part": "churn",
        "peer": session.rank,
        "kill_step": script["kill_step"] if doomed else -1,
        "kill_message": script["kill_message"],
    }
    peers.append(PeerProcess(own, _log(session, "peer")))
    waiting = [peers[-1]]
    if session.rank == 0:
        late = {**own, "peer": session.world_size, "kill_step": -1}
        peers.append(PeerProcess(late, _log(session, "newcomer")))
        waiting.append(peers[-1])
    trouble = None
    for peer in waiting:
        if peer.wait_for("ready", READY_S) is None:
            trouble = "a peer did not start"
    found = session.control.first_problem(trouble)
    if found is not None:
        raise CaseError("crashed", found)


def _follow(
    session: Session, peers: list[PeerProcess], script: dict[str, int]
) -> dict[int, list[dict[str, Any]]]:
    """Give the signs, read messages until everyone has ended, and return each hosted peer's messages."""
    newcomer = peers[-1] if session.rank == 0 else None
    own = peers[-2] if newcomer is not None else peers[-1]
    hosted = {session.rank: own}
    session.control.barrier()
    own.command({"go": True})
    timeline: dict[int, list[dict[str, Any]]] = {session.rank: []}
    if newcomer is not None:
        timeline[session.world_size] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for number, peer in hosted.items():
            timeline[number] += peer.drain()
        if newcomer is not None and session.world_size not in hosted and _reached(timeline, script, own):
            newcomer.command({"go": True})
            hosted[session.world_size] = newcomer
        if all(_over(timeline[number]) for number in hosted):
            break
        time.sleep(0.002)
    return timeline


def _reached(timeline: dict[int, list[dict[str, Any]]], script: dict[str, int], own: PeerProcess) -> bool:
    """Tell whether the group has come to the step in which the newcomer joins, or can never come there."""
    messages = timeline[min(timeline)]
    if any(m["kind"] == "done" and m["step"] >= script["join_step"] for m in messages):
        return True
    return _over(messages)


def _over(messages: list[dict[str, Any]]) -> bool:
    return any(m["kind"] in ("end", "failed", "died") for m in messages)


def _judge(
    session: Session,
    block: Block,
    script: dict[str, int],
    own: dict[int, list[dict[str, Any]]],
    seed: int,
) -> dict[str, Any]:
    """Put the ranks' observations together and work out the metrics (the same on every rank)."""
    offset = session.control.clock_offset_ns
    mine = {
        str(n): [{**m, "seen_ns": m["seen_ns"] + offset} for m in messages] for n, messages in own.items()
    }
    peers: dict[int, list[dict[str, Any]]] = {}
    for text in session.control.gather_text(json.dumps(mine)):
        peers.update({int(n): messages for n, messages in json.loads(text).items()})
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
    peers: dict[int, list[dict[str, Any]]],
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


def _dones(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [m for m in messages if m["kind"] == "done"]


def _done(messages: list[dict[str, Any]], step: int) -> bool:
    return any(m["step"] == step for m in _dones(messages))


def _duration(messages: list[dict[str, Any]], step: int) -> float:
    begin = next(m["seen_ns"] for m in messages if m["kind"] == "begin" and m["step"] == step)
    done = next(m["seen_ns"] for m in _dones(messages) if m["step"] == step)
    return float(done - begin) * 1e-9


def _members_agree(peers: dict[int, list[dict[str, Any]]], survivors: list[int]) -> bool:
    """Every survivor names the same members for every step, and all survivors are among them."""
    by_step: dict[int, set[tuple[int, ...]]] = {}
    for n in survivors:
        for m in _dones(peers[n]):
            by_step.setdefault(m["step"], set()).add(tuple(sorted(m["members"])))
    return all(len(found) == 1 and set(survivors) <= set(next(iter(found))) for found in by_step.values())


def _resent(peers: dict[int, list[dict[str, Any]]], survivors: list[int], kill_step: int) -> int:
    """Return what survivors sent in the struck step beyond what the same members sent in the next one."""
    extra = 0
    for n in survivors:
        moved = {m["step"]: int(m["bytes"]) for m in _dones(peers[n])}
        extra += max(moved.get(kill_step, 0) - moved.get(kill_step + 1, 0), 0)
    return extra
