"""Data parallelism: what makes a point legal; free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.family import Params
from paceline.base.footprint import Footprint
from paceline.base.operation import Operation
from paceline.families.training.core.legality import estimate_s, number, problems
from paceline.families.training.core.metrics import DERIVED
from paceline.families.training.core.parameters import NONE, ONE_PART
from paceline.families.training.core.promises import Elastic
from paceline.families.training.ops.data_parallel.metrics import METRICS
from paceline.families.training.ops.data_parallel.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    alone = params["absent_rank"] != NONE and number(params, "ranks") < 2
    own = ["absent_rank needs at least two ranks: somebody must go on"] if alone else []
    return own + problems(params, published_shapes=True)


def footprint(params: Params, module: str, options: Mapping[str, Any]) -> Footprint:
    """Return what a rank needs; see ``Foretell``."""
    from paceline.families.training.core.footprint import footprint as foretold  # noqa: PLC0415 - needs torch

    return foretold(params, module, options)


OPERATION = Operation(
    name="data_parallel",
    summary="the sequences of a step",
    place=0,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Elastic,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    footprint=footprint,
    fixed=ONE_PART,
)
