"""Points at which every technique of the family must prove itself; used by ``paceline.testing.conformance``."""

from __future__ import annotations

from paceline.families.training.spec import PIPELINE_PARALLEL, SEQUENCE_PARALLEL
from paceline.family import Scalar

RANKS = (1, 2, 4)


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation: a small model, rounds that do not divide the run, all proofs.

    There is one, whether ``brief`` or not. Pipelines are exact: they need no long run to show that they learn, but as
    many layers as there are stages.
    """
    if operation == PIPELINE_PARALLEL:
        return [
            {
                "size": "deep",
                "batch": 16,
                "microbatches": 4,
                "context": 15,
                "steps": 40,
                "window": 20,
                "evaluations": 2,
                "eval_batch": 64,
                "learning_rate": 0.01,
                "warmup_steps": 4,
                "proof": "all",
            }
        ]
    common: dict[str, Scalar] = {
        "size": "nano",
        "batch": 8,
        "context": 16,
        "steps": 166,
        "window": 20,
        "evaluations": 2,
        "eval_batch": 64,
        "learning_rate": 0.01,
        "warmup_steps": 4,
        "proof": "all",
    }
    if operation == SEQUENCE_PARALLEL:
        common |= {"size": "tiny", "batch": 16, "context": 31, "steps": 40}
    return [common]
