"""Whether a technique leaves the family's code as it is, so that what that code notes can be taken for measured."""

from __future__ import annotations

from paceline.families.training.api.expert.decoder import ExpertDecoder
from paceline.families.training.api.expert.replica import ExpertReplica
from paceline.families.training.api.pipeline.executor import Pass, PipelineReplica
from paceline.families.training.api.replica import Replica
from paceline.families.training.api.sequence.replica import SequenceReplica

OWN_OF_A_PIPELINE = frozenset(
    {"__init__", "schedule", "state_dict", "load_state_dict", "__doc__", "__module__"}
)
COUNTED = (PipelineReplica, SequenceReplica, ExpertReplica, ExpertDecoder)
STEP = ("forward_backward", "exchange_gradients")


def passes_of(replica: Replica) -> list[Pass] | None:
    """Return the passes of the forward and backward just done; None where a technique does anything but give a table.

    Passes on an accelerator are asynchronous: the host's clock says nothing about them.
    """
    if not isinstance(replica, PipelineReplica) or replica.task.device.type != "cpu":
        return None
    names = [name for name in vars(PipelineReplica) if name not in OWN_OF_A_PIPELINE]
    return list(replica.passes) if _kept(replica, PipelineReplica, names) else None


def passes_are_the_familys(replica: Replica) -> bool:
    """Tell whether forward and backward happen where the loop counts them."""
    kinds = [kind for kind in COUNTED if isinstance(replica, kind)]
    return any(_kept(replica, kind, STEP) for kind in kinds)


def shares_sequences(replica: Replica) -> bool:
    """Tell whether ranks share sequences, by the family's own forward and backward."""
    return isinstance(replica, SequenceReplica) and _kept(replica, SequenceReplica, STEP)


def _kept(replica: Replica, kind: type[Replica], names: list[str] | tuple[str, ...]) -> bool:
    own = type(replica)
    same = all(getattr(own, name, None) is getattr(kind, name) for name in names)
    return same and not set(names) & set(vars(replica))
