"""Points at which every technique of ``influence`` must prove itself."""

from __future__ import annotations

from paceline.base.families.family import Scalar

RANKS = (1,)


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not."""
    odd: dict[str, Scalar] = {
        "peers": 5,
        "features": 7,
        "peer_samples": 13,
        "peer_minibatch": 6,
        "gossip_steps": 11,
        "asked_steps": 4,
    }
    return [
        {**odd, "influence_hops": 0},
        {**odd, "influence_hops": 3, "peer_graph": "line"},
        {**odd, "influence_hops": 1, "flipped_peers": 0, "peer_graph": "complete"},
    ]
