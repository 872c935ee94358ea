"""Points at which every technique of ``objective`` must prove itself; what it promises says at which it can."""

from __future__ import annotations

from paceline.base.families.family import Scalar

RANKS = (1,)
_ODD: dict[str, Scalar] = {
    "nodes": 5,
    "dim": 7,
    "samples": 11,
    "horizon": "60s",
    "heterogeneity": 0.5,
    "target": 0.9,
}


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    return [
        {**_ODD, "problem": "quadratics"},
        {**_ODD, "problem": "bilinear-game", "dim": 10},
        {**_ODD, "problem": "classes", "dim": 44, "samples": 30, "graph": "complete"},
        {**_ODD, "problem": "logistic", "pace": "heavy-tailed", "horizon": "300s"},
        {**_ODD, "problem": "nonconvex", "privacy_epsilon": 3.0, "samples": 200},
    ]
