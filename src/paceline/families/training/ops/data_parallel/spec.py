"""Data parallelism: what makes a point legal; free of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from paceline.base.families.family import Params
from paceline.base.families.footprint import Footprint
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.configuration import written_out
from paceline.families.training.core.planning.legality import estimate_s, number, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import (
    NONE,
    ONE_PART,
    OWN_LOSS,
    OWN_MODEL,
    RECOMPUTED,
    is_own_data,
)
from paceline.families.training.core.planning.promises import Elastic
from paceline.families.training.ops.data_parallel.metrics import METRICS
from paceline.families.training.ops.data_parallel.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    alone = params["absent_rank"] != NONE and number(params, "ranks") < 2
    own = ["absent_rank needs at least two ranks: somebody must go on"] if alone else []
    return own + own_problems(params) + problems(params, published_shapes=True)


def own_problems(params: Params) -> list[str]:
    """Return what is illegal about a model and data of one's own."""
    model, own_data = params[OWN_MODEL], is_own_data(str(params["data"]))
    if model is None:
        return (
            [f"loss {params[OWN_LOSS]} is of a model of one's own, and there is none"]
            if params[OWN_LOSS]
            else []
        )
    found = []
    if params["size"] is not None:
        found.append(f"size {params['size']} is one of the family's model, and not of {model}: leave it out")
    if not own_data and params[OWN_LOSS] is not None:
        found.append(
            f"loss {params[OWN_LOSS]} is for data of one's own: on {params['data']} the next symbol counts"
        )
    if params["activations"] == RECOMPUTED:
        found.append(
            f"activations recomputed is for the family's layers: {model} says itself what it computes again"
        )
    if own_data:
        found += [
            f"{name} {params[name]} is for what the family draws, and not for data of one's own"
            for name, usual in (("corrupted_rank", NONE), ("data_overlap", 0.0))
            if params[name] != usual
        ]
    return found


def completed(params: Params, given: Collection[str]) -> Params:
    """Return a point without a size where the model is one's own, and with samples as tokens where the data is.

    A size in a folder is written out.

    Raises:
        UserError: It cannot be read.
    """
    found = dict(params)
    if params[OWN_MODEL] is None:
        found["size"] = written_out(str(params["size"]))
        return found
    if "size" not in given:
        found["size"] = None
    if "context" not in given and is_own_data(str(params["data"])):
        found["context"] = 1
    return found


def footprint(params: Params, module: str, options: Mapping[str, Any]) -> Footprint | None:
    """Return what a rank needs, None with a model of one's own; see ``Foretell``."""
    if params[OWN_MODEL] is not None:
        return None  # it is made where it runs, by code that the control plane does not import
    from paceline.families.training.core.memory.footprint import footprint as foretold  # noqa: PLC0415 - needs torch

    return foretold(params, module, options)


OPERATION = Operation(
    name="data_parallel",
    summary="Ranks train one model on different sequences of a step, and exchange gradients or weights.",
    interface="api.replica:Replica",
    place=0,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Elastic,
    check=check,
    completed=completed,
    estimate_s=estimate_s,
    derived=DERIVED,
    footprint=footprint,
    fixed=ONE_PART,
)
