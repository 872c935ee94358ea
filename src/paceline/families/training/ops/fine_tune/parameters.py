"""Parameters of fine-tuning on a language that has changed; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import GOAL, MODEL, RUN, TRAINING

CHANGE: tuple[Parameter, ...] = (
    Parameter(
        name="trainable",
        kind="choice",
        doc="What fine-tuning trains: all parameters, the gains of norms, or a bias of the head, zero at first.",
        default="bias",
        choices=("all", "gains", "bias"),
    ),
    Parameter(
        name="domain_shift",
        kind="number",
        doc="How far the language has changed: standard deviation of the logits that a symbol gains or loses.",
        default=1.0,
        minimum=0.0,
    ),
    Parameter(
        name="pretrain_steps",
        kind="count",
        doc="Steps of 16 sequences of the language before its change, by one process, before anything is measured.",
        default=400,
        minimum=1,
    ),
    Parameter(
        name="num_perturbations",
        kind="count",
        doc="Directions along which a rank measures a slope in one step, each on a part of its sequences.",
        default=1,
        minimum=1,
    ),
    Parameter(
        name="epsilon",
        kind="number",
        doc="How far along a direction of standard normal elements the loss is measured, to both sides.",
        default=0.01,
        minimum=1e-6,
    ),
)

PARAMETERS: tuple[Parameter, ...] = (*MODEL, *RUN, *TRAINING, *GOAL, *CHANGE)
