"""Quantities of reasoning: how large models are, how long traces, and what is spent before anything is saved."""

from __future__ import annotations

from paceline.base.families.quantities import Quantity, Witness
from paceline.families.reasoning.core.planning.model_facts import num_judge_parameters, num_parameters


def glimpse_and_judge_tokens(seen: Witness) -> float:
    """Return glimpse · traces of a question, and the tokens that the judge reads."""
    return float(seen.options["glimpse"]) * float(seen.params["samples"]) + seen.values["judge_tokens"]


QUANTITIES = (
    Quantity(
        name="model_parameters",
        unit="1",
        doc="Parameters of the embedded model that answers; of models from elsewhere nothing is known.",
        compute=lambda seen: float(num_parameters(str(seen.params["model"]))),
    ),
    Quantity(
        name="judge_parameters",
        unit="1",
        doc="Parameters of the embedded judge, which tells traces apart that will come to one answer.",
        compute=lambda seen: float(num_judge_parameters()),
    ),
    Quantity(
        name="glimpse_and_judge_tokens",
        unit="token",
        doc="Tokens of a question before anything can be pruned: `glimpse` of every trace, and what the judge reads.",
        compute=glimpse_and_judge_tokens,
    ),
    Quantity(
        name="workers_at_once",
        unit="1",
        doc="Tokens of a question over its longest chain of dependent ones: how many are written at a time.",
        compute=lambda seen: seen.values["tokens"] / seen.values["critical_path_tokens"],
    ),
)
