"""Who is guilty? Training-like steps with one injected fault, watched by a detector that sees only traces.

Script: peers run computation and a ring all-reduce, step after step, their operations traced. First undisturbed steps,
from which the detector may learn; then segments with and without tracing and watching, for the overhead; then a
segment in which one fault strikes: a rank stalls once, computes slower, its link to the next rank is slow, or it
leaves out an all-reduce and goes on to its program's next collective, in which nobody joins it. Rank 0 polls the
detector. The fault's begin is taken as the moment when the segment was ordered, so latencies are upper bounds.
"""

from __future__ import annotations

import json
import random
import socket
import time
from pathlib import Path
from typing import Any

import torch

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.traces import Alarm, TraceFeed
from paceline.families.collectives.core.planning.sizes import element_count
from paceline.families.collectives.core.scenarios.peers import PeerProcess, fork_server_of, interface_address
from paceline.families.collectives.ops.fault_localisation.promises import Detection
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import median

PARTS = f"{__package__}.part"
READY_S = 60.0
POLL_S = 0.05
LEARN_STEPS = 60
OVERHEAD_ORDER = ("traced", "plain", "plain", "traced", "plain", "traced", "traced", "plain")
OVERHEAD_STEPS = 25
QUIET_STEPS = 120
"""Steps without a fault in which a detector must stay silent."""
DETECT_S = 15.0
NAME_S = 20.0
"""Limits of the paper's figures (Mycroft: detected within 15 s, root cause within 20 s)."""
WORK = 12
"""Repetitions of the step's matrix product: a few milliseconds on a current core."""
ENDLESS = 1 << 40


def run_block(session: Session, block: Block) -> None:
    """Play the script once with each technique and emit one ``result`` event for each."""
    for case in block.cases:
        session.begin(block, case.label, "scenario")
        run_case(session, block, case)


def run_case(session: Session, block: Block, case: Case) -> None:
    """Play the script once with one detector and emit its result."""
    peers: list[PeerProcess] = []
    try:
        result = _play(session, block, case, peers)
    except CaseError as error:
        session.emit_failure(block, case, error)
    else:
        session.emit_result(block, case, result)
    finally:
        for peer in peers:
            peer.end()


def _play(session: Session, block: Block, case: Case, peers: list[PeerProcess]) -> dict[str, Any]:
    seed = session.draw_seed("fault", block.block, case.label) % (1 << 31)
    rng = random.Random(seed)
    guilty = rng.randrange(session.world_size)
    plan = _fault(
        str(block.params["fault"]), float(block.params["severity"]), guilty, session.world_size, rng
    )
    names = [
        f"watched-{session.launch}-{case.label.replace('/', '.')}-{r}.bin" for r in range(session.world_size)
    ]
    _start(session, block, case, peers, plan, names[session.rank], seed)
    watcher = _Watcher(session, block, case, [Path("logs") / n for n in names]) if session.rank == 0 else None
    _segment(session, peers[0], "traced", LEARN_STEPS, watcher)
    times: dict[str, list[float]] = {"traced": [], "plain": []}
    for name in OVERHEAD_ORDER:
        times[name].append(
            _segment(session, peers[0], name, OVERHEAD_STEPS, watcher if name == "traced" else None)
        )
    early = watcher.alarm if watcher is not None else None
    quiet = plan["kind"] == "none"
    outcome = _strike(session, peers[0], watcher, quiet=quiet)
    overhead = median(times["traced"]) / median(times["plain"])
    if watcher is not None:
        watcher.close()
    return _result(plan, early, outcome, overhead, seed)


def _fault(kind: str, severity: float, guilty: int, size: int, rng: random.Random) -> dict[str, Any]:
    """Return what will go wrong: faults of the communicator, or a slower computation."""
    at = 2 * rng.randrange(5, 20)
    victim = (guilty + 1) % size
    faults: dict[str, list[dict[str, Any]]] = {
        "stall": [{"kind": "delay", "rank": guilty, "at_operation": at, "seconds": severity}],
        "slow-link": [
            {"kind": "link", "rank": victim, "peer": guilty, "seconds": severity * 1e-3, "repeat": ENDLESS}
        ],
    }
    blamed = [guilty, victim] if kind == "slow-link" else [guilty]
    return {
        "kind": kind,
        "guilty": blamed if kind != "none" else [],
        "faults": faults.get(kind, []),
        "slow_rank": guilty if kind == "slow-rank" else None,
        "slow_factor": severity,
        "missing_rank": guilty if kind == "missing-call" else None,
        "missing_step": rng.randrange(2, 12),
    }


def _start(
    session: Session,
    block: Block,
    case: Case,
    peers: list[PeerProcess],
    plan: dict[str, Any],
    trace: str,
    seed: int,
) -> None:
    host = interface_address(session.interface)
    with socket.socket() as probe:
        probe.bind((host, 0))
        mine = [host, probe.getsockname()[1]]
    store = json.loads(session.control.gather_text(json.dumps(mine))[0])
    config = {
        "part": "steps",
        "module": case.module,
        "technique": case.technique,
        "peer": session.rank,
        "num_peers": session.world_size,
        "count": element_count(block.params),
        "seed": seed,
        "store": store,
        "interface": session.interface,
        "trace": str(Path("logs") / trace),
        "faults": plan["faults"],
        **{k: plan[k] for k in ("slow_rank", "slow_factor", "missing_rank", "missing_step")},
        "work": WORK,
    }
    log = Path("logs") / f"peer-{session.launch}-{session.rank}-steps.log"
    peers.append(PeerProcess(fork_server_of(session, PARTS), config, log))
    ready = peers[0].wait_for("ready", READY_S)
    trouble = session.control.first_problem(None if ready else "a peer did not start")
    if trouble is not None:
        raise CaseError("crashed", trouble)


class _Watcher:
    """Rank 0's view: polls the detector and keeps its first alarm and the first that names somebody."""

    def __init__(self, session: Session, block: Block, case: Case, paths: list[Path]) -> None:
        self._feed = TraceFeed(paths)
        info = session.loaded(case).info
        assert info is not None
        self.names_ranks = info.promised(Detection).names_ranks
        problem = Problem(
            operation=str(block.params["op"]),
            rank=0,
            world_size=session.world_size,
            dtype=torch.float32,
            device=torch.device("cpu"),
            count=0,
            params=dict(block.params),
        )
        self._detector = session.loaded(case).factory(problem, self._feed, **case.options)
        self.alarm: tuple[float, Alarm] | None = None
        self.naming: tuple[float, Alarm] | None = None

    def poll(self) -> None:
        """Ask the detector once."""
        alarm = self._detector.poll()
        if alarm is None:
            return
        now = time.monotonic()
        if self.alarm is None:
            self.alarm = (now, alarm)
        if alarm.ranks and self.naming is None:
            self.naming = (now, alarm)

    def close(self) -> None:
        """Let go of the traces."""
        self._feed.close()


def _segment(session: Session, peer: PeerProcess, name: str, steps: int, watcher: _Watcher | None) -> float:
    """Run a segment on all ranks; rank 0 polls the detector meanwhile. Return the slowest rank's median step."""
    session.control.barrier()
    peer.command({"segment": name, "steps": steps})
    deadline = time.monotonic() + READY_S
    message = None
    while message is None and time.monotonic() < deadline and peer.alive:
        if watcher is not None:
            watcher.poll()
        message = peer.wait_for("segment", POLL_S)
    value = float(message["median_s"]) if message else -1.0
    everyone = [rows[0][0] for rows in session.control.gather([[value]])]
    if min(everyone) < 0:
        raise CaseError(
            "crashed", f"the segment '{name}' did not end on rank {everyone.index(min(everyone))}"
        )
    return max(everyone)


def _strike(session: Session, peer: PeerProcess, watcher: _Watcher | None, *, quiet: bool) -> dict[str, Any]:
    """Order the segment with the fault; watch until the detector has said all that it can, or the time is over."""
    session.control.barrier()
    began = time.monotonic()
    peer.command({"segment": "faulty", "steps": QUIET_STEPS if quiet else 1 << 20})
    names = watcher is not None and watcher.names_ranks
    limit = READY_S if quiet else NAME_S if names else DETECT_S
    outcome: dict[str, Any] = {}
    while session.rank == 0 and time.monotonic() - began < limit:
        assert watcher is not None
        watcher.poll()
        said = watcher.naming if names else watcher.alarm
        if said is not None or (quiet and peer.wait_for("segment", 0.001) is not None):
            break
        time.sleep(POLL_S)
    if watcher is not None:
        for key, found in (("alarm", watcher.alarm), ("naming", watcher.naming)):
            if found is not None:
                moment, alarm = found
                outcome[key] = {
                    "after_s": moment - began,
                    "ranks": list(alarm.ranks),
                    "reason": alarm.reason,
                }
    session.control.barrier()
    return outcome


def _result(
    plan: dict[str, Any],
    early: tuple[float, Alarm] | None,
    outcome: dict[str, Any],
    overhead: float,
    seed: int,
) -> dict[str, Any]:
    alarm, naming = outcome.get("alarm"), outcome.get("naming")

    def after(found: dict[str, Any] | None) -> float:
        return float(found["after_s"]) if found is not None else float("inf")

    metrics: dict[str, Any] = {"overhead": {"samples": [overhead]}}
    absent: dict[str, str] = {}
    if plan["kind"] == "none":
        metrics["detected"] = {"samples": [float(alarm is None)]}
        absent["named"] = absent["detection_s"] = "nothing was wrong"
    else:
        timely = early is None and after(alarm) <= DETECT_S
        named = naming["ranks"] if naming is not None and after(naming) <= NAME_S else []
        right = bool(set(named) & set(plan["guilty"])) and len(named) <= len(plan["guilty"]) + 1
        metrics["detected"] = {"samples": [float(timely)]}
        metrics["named"] = {"samples": [float(early is None and right)]}
        if timely:
            metrics["detection_s"] = {"samples": [max(after(alarm), 0.0)]}
        else:
            absent["detection_s"] = "a false alarm came first" if early else "no alarm within 15 s"
    return {
        "status": "ok",
        "metrics": metrics,
        "absent": absent,
        "correctness": {"passed": True, "oracle": "the injected fault is known", "gate_seeds": [seed]},
        "accounting": {
            "fault": {"kind": plan["kind"], "guilty": plan["guilty"]},
            "early_alarm": early[1].reason if early else None,
            **outcome,
        },
    }
