"""Measures one block of ``denoise``: images that ranks take the noise out of together.

All ranks prove the techniques in lockstep, then measure them by turns, in a fresh order each time.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from types import ModuleType
from typing import Any

from paceline.base.counting import number_of
from paceline.families.serving.core.results import result
from paceline.families.serving.core.sealed import after_every_call, all_loaded
from paceline.families.serving.ops.denoise.candidate import NUM_EXACT, ORACLE, Candidate, Proved, ground_of
from paceline.worker.ranks.session import Block, CaseError, Session

REPEATS = 3
LABEL = "virtual time from measured computation and a stated link"


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what is looked at after every call of a technique."""
    return after_every_call(__package__)


def sealed_seldom(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what is looked at when a technique was proved or measured."""
    return all_loaded()


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    seed = session.draw_seed("noise", block.block)
    params = block.params
    session.begin(block, "-", "inputs")
    ground = ground_of(session, num_images=int(params["images"]), num_steps=int(params["steps"]), seed=seed)
    candidates: list[tuple[Candidate, Proved]] = []
    for case in block.cases:
        session.begin(block, case.label, "gate")
        try:
            candidate = Candidate(session, case, ground)
            candidates.append((candidate, candidate.prove()))
        except CaseError as error:
            session.emit_failure(block, case, error)
    rng = random.Random(f"{seed}/order")
    for _ in range(REPEATS):
        for candidate, _ in rng.sample(candidates, len(candidates)):
            session.begin(block, candidate.label, "measure")
            candidate.measure()
    link = {"rate": float(params["rank_link"]), "delay": float(params["rank_link_delay"])}
    for candidate, proved in candidates:
        session.begin(block, candidate.label, "replay")
        try:
            virtual_s = candidate.virtual_s(link)
        except CaseError as error:
            session.emit_failure(block, candidate.case, error)
        else:
            session.emit_result(block, candidate.case, _told(candidate, proved, virtual_s))


def _told(candidate: Candidate, proved: Proved, virtual_s: float) -> dict[str, Any]:
    """Return the event of a technique that passed."""
    count, steps = len(candidate.ground.noise_BSS), candidate.setting.num_steps
    told = result(
        {
            "virtual_denoise_time": virtual_s,
            "image_deviation": proved.deviation,
            "image_distance": proved.distance,
            "layer_passes": proved.passes,
            "sent_per_image": proved.sent,
        },
        checks=count + NUM_EXACT,
        oracle=ORACLE,
        accounting={
            "requested": count,
            "ok": count,
            "failed": 0,
            "dropped": 0,
            "label": LABEL,
            "clock": candidate.clock_name,
            "weights": candidate.ground.digest,
            "steps": steps,
            "layers": candidate.setting.num_layers,
            "off_with_exact_steps": proved.off,
        },
    )
    if candidate.real_s:
        told["metrics"]["denoise_time"] = {"samples": candidate.real_s}
    else:
        told["absent"]["denoise_time"] = (
            f"{number_of(candidate.session.world_size, 'rank has', 'ranks have')} fewer cores; see virtual_denoise_time"
        )
    return told
