"""Fine-tuning: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.training.core.planning.legality import estimate_s, number, problems
from paceline.families.training.core.planning.metrics import DERIVED
from paceline.families.training.core.planning.parameters import ALIKE_RANKS, ONE_PART
from paceline.families.training.core.planning.promises import Slopes
from paceline.families.training.ops.fine_tune.metrics import METRICS
from paceline.families.training.ops.fine_tune.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    own: list[str] = []
    rows = number(params, "batch") // number(params, "ranks")
    if rows % number(params, "num_perturbations"):
        own.append(
            f"{rows} sequences of a rank cannot be split between {params['num_perturbations']} perturbations"
        )
    if params["data"] != "markov":
        own.append("fine_tune needs data that can change: markov")
    return problems(params, own=own)


OPERATION = Operation(
    name="fine_tune",
    summary="Ranks train a model further, on sequences of a language that has changed since.",
    interface="api.replica:Replica",
    place=5,
    parameters=PARAMETERS,
    metrics=METRICS,
    properties=Slopes,
    check=check,
    estimate_s=estimate_s,
    derived=DERIVED,
    fixed={**ONE_PART, **ALIKE_RANKS},
)
