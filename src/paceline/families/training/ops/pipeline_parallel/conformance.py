"""Points at which pipelines must prove themselves."""

from __future__ import annotations

from paceline.base.families.family import Scalar
from paceline.families.training.core.planning.conformance import FEWER_KV_HEADS, POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not.

    Pipelines need as many layers as there are stages, and a rate at which eight layers learn evenly: at 0.01 how a
    processor rounds decides whether 30 steps take away 0.2 % or 4 % of the loss.
    """
    own: dict[str, Scalar] = {"size": "deep", "batch": 16, "microbatches": 4, "context": 15}
    run: dict[str, Scalar] = {"steps": 17, "window": 8, "learning_rate": 0.003}
    return [{**POINT, **own, **run, **FEWER_KV_HEADS}]
