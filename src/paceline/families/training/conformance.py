"""Points at which every technique of the family must prove itself; used by ``paceline.testing.conformance``."""

from __future__ import annotations

from paceline.family import Scalar

RANKS = (1, 2, 4)


def points(operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points of an operation: a small model, rounds that do not divide the run, all proofs.

    There is one, whether ``brief`` or not.
    """
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
    return [common]
