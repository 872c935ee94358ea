"""Measures one block of ``decode``: answers decoded with a draft model beside copies of the target, in virtual time.

Latencies and how often the drafter agrees are the point's; every technique decodes the same answers. The log of each
answer is judged against target and drafter drawn anew before any time is told.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paceline.base.counting import number_of
from paceline.families.serving.api.speculating import CHECK, DRAFT, Given
from paceline.families.serving.core.isolated import ask
from paceline.families.serving.core.results import each_case, result, write_log
from paceline.families.serving.ops.decode.chain import Chain
from paceline.families.serving.ops.decode.event_simulator import DecodingLog, Played
from paceline.families.serving.ops.decode.figures import decoding_figures
from paceline.families.serving.ops.decode.gate import broken_laws
from paceline.worker.ranks.session import Block, Case, CaseError, Session

CHILD = "paceline.families.serving.ops.decode.child"
LABEL = "virtual time from stated latencies"
ORACLE = (
    "the target's greedy answer, and laws of devices, costs and knowledge, read from the log of every call"
)


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    if session.rank != 0:
        return
    rng = random.Random(session.draw_seed("answers", block.block))
    seeds = [rng.randrange(2**63) for _ in range(int(block.params["requests"]))]
    each_case(session, block, lambda case: _decoded(session, block, case, seeds))


def given_of(params: Mapping[str, Any]) -> Given:
    """Return what a decoder gets at a point."""
    target_s = float(params["target_latency"])
    return Given(
        num_tokens=int(params["output_tokens"]),
        servers=int(params["servers"]),
        lookahead=int(params["lookahead"]),
        target_s=target_s,
        drafter_s=target_s * float(params["draft_ratio"]),
        growth=float(params["growth"]),
        interruptible=bool(params["interruptible"]),
    )


def _decoded(session: Session, block: Block, case: Case, seeds: Sequence[int]) -> dict[str, Any]:
    """Let a technique decode all answers, judge each, and read the figures from the logs."""
    given = given_of(block.params)
    acceptance = float(block.params["acceptance"])
    asked = {"given": asdict(given), "acceptance": acceptance, "seeds": list(seeds)}
    told = ask(case, CHILD, asked)["logs"]
    if len(told) != len(seeds):
        raise CaseError(
            "incorrect", f"{number_of(len(told), 'answer was', 'answers were')} decoded of {len(seeds)}"
        )
    logs = [log_of(log) for log in told]
    for number, (log, seed) in enumerate(zip(logs, seeds, strict=True)):
        problems = broken_laws(log, given, Chain(seed, acceptance))
        if problems:
            raise CaseError("incorrect", f"answer {number}: " + "; ".join(problems))
    return result(
        decoding_figures(logs, given),
        checks=sum(len(log.delivered) for log in logs),
        oracle=ORACLE,
        accounting={
            "requested": len(logs),
            "ok": len(logs),
            "failed": 0,
            "dropped": 0,
            "label": LABEL,
            "calls": {kind: sum(j.kind == kind for log in logs for j in log.jobs) for kind in (DRAFT, CHECK)},
            "cancelled": sum(j.cancelled_s is not None for log in logs for j in log.jobs),
        },
        artifacts={"decoding": write_log({"answers": told}, session, block, case)},
    )


def log_of(told: Mapping[str, Any]) -> DecodingLog:
    """Read what another process has written."""
    return DecodingLog(
        edges=[(int(parent), int(token)) for parent, token in told["edges"]],
        jobs=[Played(**job) for job in told["jobs"]],
        delivered=[(int(token), float(at_s)) for token, at_s in told["delivered"]],
    )
