"""Measures one block of ``cache``: what a trained model loses when its decoder keeps fewer bytes of the tokens before.

Texts are read position by position over what a technique has kept, in a process of its own; a second one makes keys and
values again of what was kept alone. The reference is one pass over whole texts, which keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.families.serving.core.isolated import ask
from paceline.families.serving.core.results import each_case, result
from paceline.families.serving.ops.cache.child import network_of
from paceline.families.serving.ops.cache.reading import whole_losses
from paceline.families.serving.ops.cache.texts import draw_texts
from paceline.worker.ranks.session import Block, Case, CaseError, Session

CHILD = "paceline.families.serving.ops.cache.child"
HALF_BYTES = 2
ORACLE = "one pass over whole texts; keys and values made again by another process from what was kept"


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    if session.rank != 0:
        return
    params = block.params
    seed = session.draw_seed("texts", block.block) % 2**63
    network = network_of(str(params["checkpoint"]))
    texts = draw_texts(seed, int(params["requests"]), network.shape.context)
    whole = [float(x) for x in whole_losses(network, texts)[texts.counted_BT[:, 1:]]]
    shape = network.shape
    half = 2 * shape.layers * shape.width * HALF_BYTES
    each_case(session, block, lambda case: _kept(session, block, case, seed, whole, half))


def _kept(
    session: Session, block: Block, case: Case, seed: int, whole: Sequence[float], half_bytes: int
) -> dict[str, Any]:
    """Let a technique read the texts, judge what it kept, and hold its losses against those of whole texts."""
    params = block.params
    file = Path.cwd() / f"kept-{session.launch}-{block.block}-{case.case_id}.pt"
    asked = {
        "checkpoint": params["checkpoint"],
        "bits": int(params["bits"]),
        "texts": int(params["requests"]),
        "seed": seed,
        "file": str(file),
    }
    try:
        told = ask(case, CHILD, {**asked, "again": False})
        again = ask(case, CHILD, {**asked, "again": True})
    finally:
        file.unlink(missing_ok=True)
    if again["problem"]:
        raise CaseError("incorrect", str(again["problem"]))
    losses = told["losses"]
    if len(losses) != len(whole) or not all(math.isfinite(loss) for loss in losses):
        raise CaseError("incorrect", "a token has no finite probability over what was kept")
    here, there = (math.exp(sum(values) / len(values)) for values in (losses, whole))
    return result(
        {
            "perplexity_gap": here - there,
            "loss_gap": (sum(losses) - sum(whole)) / len(whole),
            "cache_bytes": told["bytes_per_token"],
            "cache_compression": half_bytes / told["bytes_per_token"],
            "rebuild_flops": again["rebuild_flops"],
        },
        checks=again["moments"],
        oracle=ORACLE,
        accounting={
            "requested": int(params["requests"]),
            "ok": int(params["requests"]),
            "failed": 0,
            "dropped": 0,
            "tokens": len(whole),
            "perplexity": {"kept": here, "whole": there},
        },
    )
