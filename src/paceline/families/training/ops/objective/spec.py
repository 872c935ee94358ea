"""What the control plane knows about ``objective``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.base.techniques.technique import Technique
from paceline.families.training.core.planning.graphs import STAR
from paceline.families.training.ops.objective.metrics import METRICS
from paceline.families.training.ops.objective.parameters import PARAMETERS
from paceline.families.training.ops.objective.problems import CLASSES, GAME, LOGISTIC, NONCONVEX, NUM_CLASSES
from paceline.families.training.ops.objective.promises import Optimising


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong: list[str] = []
    problem, dim = params["problem"], int(str(params["dim"]))
    if problem == GAME and dim % 2:
        wrong.append(f"a game has two sides: dim must be even, not {dim}")
    if problem == CLASSES and dim % NUM_CLASSES:
        wrong.append(f"a classifier has {NUM_CLASSES} classes: dim must be a multiple of that, not {dim}")
    if float(str(params["privacy_epsilon"])) > 0 and problem not in (LOGISTIC, NONCONVEX):
        wrong.append(
            f"privacy needs gradients of samples, which {LOGISTIC} and {NONCONVEX} have, not {problem}"
        )
    if 2 * int(str(params["byzantine"])) >= int(str(params["nodes"])):
        wrong.append(
            f"{params['byzantine']} of {params['nodes']} nodes are Byzantine: no rule can tell who is right"
        )
    if float(str(params["privacy_epsilon"])) > 0 and int(str(params["byzantine"])):
        wrong.append("attacks are of plain gradients: byzantine must be 0 where privacy is asked for")
    if float(str(params["leaving_share"])) >= 1.0:
        wrong.append("leaving_share must be below 1: somebody must stay")
    if params["graph"] != STAR and int(str(params["nodes"])) < 3:
        wrong.append("a graph without a server needs at least 3 nodes")
    return wrong


def unsupported(params: Params, technique: Technique) -> str | None:
    """Return why a technique cannot run a point, or None."""
    promised = technique.promised(Optimising)
    if (params["problem"] == GAME) != promised.games:
        return f"it is {'' if promised.games else 'not '}for games"
    if (float(str(params["privacy_epsilon"])) > 0) != promised.private:
        return f"it {'runs only where' if promised.private else 'cannot run where'} privacy is asked for"
    if (params["graph"] == STAR) != promised.server:
        return f"it is for graphs {'with' if promised.server else 'without'} a server"
    if promised.by_values and params["problem"] == CLASSES:
        return "it asks for values, and a classifier has none here that is its own"
    if promised.by_values and int(str(params["byzantine"])):
        return "it asks for values, and attacks are of gradients"
    return None


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 4.0


OPERATION = Operation(
    name="objective",
    place=9,
    summary="Nodes with data of their own seek a known optimum, and send each other messages in virtual time.",
    interface="api.objective:Optimiser",
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Optimising,
    requirements=DeviceRequirements,
    check=check,
    unsupported=unsupported,
    estimate_s=estimate_s,
    isolated=True,
)
