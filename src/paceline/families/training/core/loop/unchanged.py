"""Whether a technique leaves the family's code as it is, so that what that code notes can be taken for measured."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.training.api.replica import Replica

STEP = ("forward_backward", "exchange_gradients")


def passes_are_the_familys(replica: Replica, kinds: Sequence[type[Replica]]) -> bool:
    """Tell whether forward and backward happen where the loop counts them.

    Args:
        replica: The technique.
        kinds: Replicas of the family that run both.
    """
    return any(isinstance(replica, kind) and is_unchanged(replica, kind, STEP) for kind in kinds)


def is_unchanged(replica: Replica, kind: type[Replica], names: Sequence[str]) -> bool:
    """Tell whether a technique has some methods as they are in a class of the family."""
    own = type(replica)
    same = all(getattr(own, name, None) is getattr(kind, name) for name in names)
    # Neither in a subclass nor on the instance: what is replaced there runs instead of the family's code.
    return same and not set(names) & set(vars(replica))
