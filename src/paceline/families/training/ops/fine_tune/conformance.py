"""Points at which techniques of fine-tuning must prove themselves."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    change: dict[str, Scalar] = {
        "steps": 32,
        "window": 15,
        "domain_shift": 2.0,
        "pretrain_steps": 40,
        "num_perturbations": 2,
    }
    return [{**POINT, "optimizer": "sgd", "learning_rate": 1.0, **change}]
