"""Points at which techniques that share sequences must prove themselves."""

from __future__ import annotations

from itertools import product

from paceline.base.families.family import Scalar
from paceline.families.training.api.sizes import ATTENTIONS
from paceline.families.training.core.planning.conformance import KV_HEADS, POINT, RANKS

__all__ = ["RANKS", "points"]


def points(*, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points, whether ``brief`` or not.

    They have each kind of attention, with as many heads of keys as of queries and with half as many, since ranks deal
    heads out; a technique of one kind is unsupported at the other's.
    """
    own: dict[str, Scalar] = {"context": 31, "steps": 22, "window": 10}
    kinds = product(ATTENTIONS, KV_HEADS)
    return [{**POINT, **own, "attention": attention, "kv_heads": heads} for attention, heads in kinds]
