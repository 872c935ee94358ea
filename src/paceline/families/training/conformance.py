"""Points at which every technique of the family must prove itself; see ``paceline.workflows.conformance``."""

from __future__ import annotations

from itertools import product

from paceline.base.family import Scalar
from paceline.families.training.api.sizes import GATED_LINEAR, SOFTMAX
from paceline.families.training.core.parameters import (
    CHECKPOINT,
    CHURN,
    EXPERT_INFERENCE,
    EXPERT_PARALLEL,
    FINE_TUNE,
    PIPELINE_PARALLEL,
    SEQUENCE_PARALLEL,
    WITH_EXPERTS,
)

RANKS = (1, 2, 4)
KV_HEADS = (4, 2)
"""Of sizes with four heads of queries."""


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation: a small model, rounds that do not divide the run, all proofs.

    They are the same whether ``brief`` or not. What is exact needs no long run to show that it learns; pipelines need
    as many layers as there are stages, and a rate at which eight layers learn evenly: at 0.01 how a processor rounds
    decides whether 30 steps take away 0.2 % or 4 % of the loss. Ranks that share sequences have each kind of attention,
    with as many heads of keys as of queries and with half as many, since they deal heads out; a technique of one kind
    is unsupported at the other's. Pipelines and experts, whose attention is whole on a rank, have half as many alone.
    ``churn`` has no points: its runs are judged whole, exchange by exchange.
    """
    if operation == CHURN:
        return []
    if operation == PIPELINE_PARALLEL:
        return [
            {
                "size": "deep",
                "batch": 16,
                "microbatches": 4,
                "context": 15,
                "steps": 30,
                "window": 15,
                "evaluations": 2,
                "eval_batch": 64,
                "learning_rate": 0.003,
                "warmup_steps": 4,
                "proof": "all",
                "kv_heads": KV_HEADS[-1],
            }
        ]
    common: dict[str, Scalar] = {
        "size": "nano",
        "batch": 8,
        "context": 16,
        "steps": 86,
        "window": 20,
        "evaluations": 2,
        "eval_batch": 64,
        "learning_rate": 0.01,
        "warmup_steps": 4,
        "proof": "all",
    }
    if operation == FINE_TUNE:
        common |= {"optimizer": "sgd", "learning_rate": 1.0, "steps": 60, "shift": 2.0, "pretrain_steps": 40}
        common |= {"probes": 2}
    if operation == CHECKPOINT:
        common |= {"steps": 30, "window": 10}
    if operation == EXPERT_INFERENCE:
        common |= {"size": "deep", "context": 7, "steps": 12, "window": 6, "experts": 8}
    if operation == EXPERT_PARALLEL:
        common |= {"context": 31, "steps": 50, "experts": 8, "top_k": 2, "capacity": 0.9}
    if operation in WITH_EXPERTS:
        return [common | {"kv_heads": KV_HEADS[-1]}]
    if operation != SEQUENCE_PARALLEL:
        return [common]
    common |= {"context": 31, "steps": 40}
    kinds = product((SOFTMAX, GATED_LINEAR), KV_HEADS)
    return [common | {"attention": attention, "kv_heads": heads} for attention, heads in kinds]
