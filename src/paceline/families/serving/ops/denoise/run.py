"""Measures one block of ``denoise``: images that ranks take the noise out of together.

All ranks prove the techniques in lockstep, then measure them by turns, in a fresh order each time.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from types import ModuleType
from typing import Any

from paceline.families.serving.core.results import result
from paceline.families.serving.core.sealed import after_every_call, all_loaded
from paceline.families.serving.ops.denoise.arm import NUM_EXACT, ORACLE, Arm, Proved, ground_of
from paceline.worker.session import Block, CaseError, Session

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
    arms: list[tuple[Arm, Proved]] = []
    for case in block.cases:
        session.begin(block, case.label, "gate")
        try:
            arm = Arm(session, case, ground)
            arms.append((arm, arm.prove()))
        except CaseError as error:
            session.emit_failure(block, case, error)
    rng = random.Random(f"{seed}/order")
    for _ in range(REPEATS):
        for arm, _ in rng.sample(arms, len(arms)):
            session.begin(block, arm.label, "measure")
            arm.measure()
    link = {"rate": float(params["rank_link"]), "delay": float(params["rank_link_delay"])}
    for arm, proved in arms:
        session.begin(block, arm.label, "replay")
        try:
            virtual_s = arm.virtual_s(link)
        except CaseError as error:
            session.emit_failure(block, arm.case, error)
        else:
            session.emit_result(block, arm.case, _told(arm, proved, virtual_s))


def _told(arm: Arm, proved: Proved, virtual_s: float) -> dict[str, Any]:
    """Return the event of a technique that passed."""
    count, steps = len(arm.ground.noise_BSS), arm.setting.num_steps
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
            "clock": arm.clock_name,
            "weights": arm.ground.digest,
            "steps": steps,
            "layers": arm.setting.num_layers,
            "off_with_exact_steps": proved.off,
        },
    )
    if arm.real_s:
        told["metrics"]["denoise_time"] = {"samples": arm.real_s}
    else:
        told["absent"]["denoise_time"] = (
            f"{arm.session.world_size} ranks have fewer cores; see virtual_denoise_time"
        )
    return told
