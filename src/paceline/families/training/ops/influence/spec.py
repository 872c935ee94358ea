"""What the control plane knows about ``influence``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.training.ops.influence.metrics import METRICS
from paceline.families.training.ops.influence.parameters import PARAMETERS
from paceline.families.training.ops.influence.promises import Influencing


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong: list[str] = []
    count = {
        name: int(str(params[name])) for name in ("peers", "flipped_peers", "asked_steps", "gossip_steps")
    }
    if count["flipped_peers"] >= count["peers"]:
        wrong.append(f"{count['flipped_peers']} of {count['peers']} peers are flipped: nobody is right")
    if count["asked_steps"] > count["gossip_steps"]:
        wrong.append(f"{count['asked_steps']} steps are asked for, and a run has {count['gossip_steps']}")
    if int(str(params["peer_minibatch"])) > int(str(params["peer_samples"])):
        wrong.append("peer_minibatch must be at most peer_samples: a step's samples are all different")
    return wrong


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 2.0 + 1e-3 * int(str(params["asked_steps"])) * int(str(params["peers"])) ** 2


OPERATION = Operation(
    name="influence",
    place=11,
    summary="Peers learn by gossip, and whose data helped whom is held against runs without one step of one peer.",
    interface="api.influence:Estimator",
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Influencing,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
