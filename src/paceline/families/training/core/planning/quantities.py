"""Quantities of a training run: how long it was, how large its model, and what its passes take; free of torch."""

from __future__ import annotations

from statistics import fmean

from paceline.base.families.quantities import Quantity, Witness

FORWARD, WEIGHTS = "F", "W"
"""Kinds of passes in a timeline: a microbatch's forward, and its gradients of the weights."""
PLAYED = "simulated"
"""Title of the timeline in which every pass takes its own processor seconds, whatever else runs on its core."""


def outer_rounds(seen: Witness) -> float:
    """Return how often replicas exchange: steps over steps in a round, which is one where every step exchanges."""
    return float(seen.params["steps"]) // float(seen.options.get("sync_every", 1))


def tokens_per_parameter(seen: Witness) -> float:
    """Return batch · context · steps / parameters."""
    tokens = float(seen.params["batch"]) * float(seen.params["context"]) * float(seen.params["steps"])
    return tokens / parameters(seen)


def parameters(seen: Witness) -> float:
    """Return how many numbers the model learns."""
    return float(seen.ceilings["parameters"])


def ranks_per_core(seen: Witness) -> float:
    """Return how many ranks share a core that the run may use."""
    return float(seen.params["ranks"]) / float(seen.host["usable_cores"])


def weight_pass_share(seen: Witness) -> float | None:
    """Return the mean time of a weight pass over a forward's, in processor seconds of the first step drawn."""
    for timeline in seen.accounting["timeline"]:
        if timeline["title"] == PLAYED:
            bars = [bar for rank in timeline["ranks"] for bar in rank]
            weights, forward = (
                [end - begin for kind, _, _, begin, end in bars if kind == wanted]
                for wanted in (WEIGHTS, FORWARD)
            )
            return fmean(weights) / fmean(forward)
    return None


def virtual_work_s(seen: Witness) -> float:
    """Return what the passes of a step take of the time in which it is played: virtual_s without its bubble, in s."""
    return seen.values["virtual_s"] * (1 - seen.values["virtual_bubble_fraction"])


QUANTITIES = (
    Quantity(
        name="outer_rounds",
        unit="1",
        doc="Exchanges between replicas: steps over steps in a round (`sync_every`).",
        compute=outer_rounds,
    ),
    Quantity(
        name="tokens_per_parameter",
        unit="token",
        doc="batch · context · steps / parameters.",
        compute=tokens_per_parameter,
    ),
    Quantity(name="parameters", unit="1", doc="Parameters of the model.", compute=parameters),
    Quantity(
        name="ranks_per_core",
        unit="1",
        doc="Ranks over the cores that the run may use.",
        compute=ranks_per_core,
    ),
    Quantity(
        name="weight_pass_share",
        unit="ratio",
        doc="Pipelines that split backward: mean processor time of a weight pass over a forward's.",
        compute=weight_pass_share,
    ),
    Quantity(
        name="virtual_work_s",
        unit="s",
        doc="Pipelines: what a rank's passes take of a step that is played, virtual_s · (1 − virtual_bubble_fraction).",
        compute=virtual_work_s,
    ),
)
