"""Parameters of ``decode``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import OUTPUT_TOKENS, REQUESTS

PARAMETERS: tuple[Parameter, ...] = (
    REQUESTS,
    OUTPUT_TOKENS,
    Parameter(
        name="target_latency",
        kind="duration",
        doc="Of one call of the target model that checks no draft.",
        default=0.03,
    ),
    Parameter(
        name="draft_ratio",
        kind="number",
        doc="The drafter's time for one token over the target's.",
        default=0.1,
        minimum=1e-6,
    ),
    Parameter(
        name="acceptance",
        kind="number",
        doc="Probability that the drafter says what the target says, behind each prefix anew.",
        default=0.8,
        minimum=0.0,
    ),
    Parameter(
        name="lookahead",
        kind="count",
        doc="Drafts that a call of the target checks, for who does not choose it.",
        default=5,
        minimum=1,
    ),
    Parameter(name="servers", kind="count", doc="Copies of the target.", default=7, minimum=1),
    Parameter(
        name="growth",
        kind="number",
        doc="What each draft adds to a call of the target, as a share of it.",
        default=0.0,
        minimum=0.0,
    ),
    Parameter(
        name="interruptible",
        kind="flag",
        doc="Whether a cancelled call leaves its device at once; else the device is busy to the call's end.",
        default=True,
    ),
)
