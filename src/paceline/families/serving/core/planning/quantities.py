"""Quantities of serving: how large the model is, and what of the machine was measured; free of torch."""

from __future__ import annotations

from paceline.base.families.quantities import Quantity, Witness
from paceline.families.reasoning.core.planning.model_facts import num_layers, num_parameters
from paceline.families.serving.core.model_sizes import SIZES

WHOLE = 1
"""Shares of a device at which costs were measured where a record says nothing: all of it."""


def layers(seen: Witness) -> float:
    """Return the layers of an embedded checkpoint, or of a model of the reference engine."""
    checkpoint = seen.params.get("checkpoint")
    if checkpoint is not None:
        return float(num_layers(str(checkpoint)))
    return float(SIZES[str(seen.params["model"])]["layers"])


def queued_share(seen: Witness) -> float:
    """Return how many of the requests the engine had when it took its first step."""
    return float(seen.accounting["engine"]["queued_at_start"]) / float(seen.accounting["requested"])


QUANTITIES = (
    Quantity(name="layers", unit="1", doc="Layers of the model.", compute=layers),
    Quantity(
        name="model_parameters",
        unit="1",
        doc="Parameters of the embedded checkpoint that reads.",
        compute=lambda seen: float(num_parameters(str(seen.params["checkpoint"]))),
    ),
    Quantity(
        name="perplexity",
        unit="1",
        doc="Of the model with its whole cache, in single precision, on the texts of the run.",
        compute=lambda seen: float(seen.accounting["perplexity"]["whole"]),
    ),
    Quantity(
        name="measured_shares",
        unit="1",
        doc="Shares of a device at which the costs were measured that the simulator plays; 1: the whole device alone.",
        compute=lambda seen: float(len(seen.accounting["costs"].get("shares", range(WHOLE)))),
    ),
    Quantity(
        name="queued_share",
        unit="ratio",
        doc="Requests that waited when the engine took its first step, over all of the batch.",
        compute=queued_share,
    ),
)
