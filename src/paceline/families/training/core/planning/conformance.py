"""What points share at which techniques must prove themselves; see ``paceline.workflows.conformance``."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar

RANKS = (1, 2, 4)
KV_HEADS = (4, 2)
"""Of sizes with four heads of queries."""
FEWER_KV_HEADS = {"kv_heads": KV_HEADS[-1]}
"""Where attention is whole on a rank, half as many heads of keys are enough."""
POINT: Mapping[str, Scalar] = {
    "size": "nano",
    "batch": 8,
    "context": 16,
    "steps": 66,
    "window": 20,
    "evaluations": 2,
    "eval_batch": 64,
    "learning_rate": 0.01,
    "warmup_steps": 4,
    "proof": "all",
}
"""A small model, rounds that do not divide the run, all proofs."""
