"""Parameters of ``call_tools``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.reasoning.core.planning.parameters import QUESTIONS

PARAMETERS: tuple[Parameter, ...] = (
    QUESTIONS,
    Parameter(
        name="calls",
        kind="count",
        doc="Calls of a question.",
        default=12,
        minimum=1,
    ),
    Parameter(
        name="depth",
        kind="count",
        doc="Layers of calls; those of a layer depend on the one before.",
        default=3,
        minimum=1,
    ),
    Parameter(
        name="replanned",
        kind="flag",
        doc="Whether the last layer can be planned only when all others have their results.",
        default=False,
    ),
    Parameter(
        name="tool_s",
        kind="duration",
        doc="Median duration of a call.",
        default=0.1,
    ),
    Parameter(
        name="thought_s",
        kind="duration",
        doc="What the language model needs before it writes.",
        default=0.05,
    ),
    Parameter(
        name="step_s",
        kind="duration",
        doc="What the language model needs to write one step.",
        default=0.01,
    ),
)
