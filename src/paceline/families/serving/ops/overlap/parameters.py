"""Parameters of ``overlap``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import OUTPUT_TOKENS, PROMPT_TOKENS
from paceline.families.serving.ops.overlap.operators import RATES, SERVED

PARAMETERS: tuple[Parameter, ...] = (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    Parameter(
        name="served",
        kind="choice",
        doc="The model whose operators are ordered, by its published sizes.",
        default="llama-2-70b",
        choices=tuple(SERVED),
    ),
    Parameter(
        name="device",
        kind="choice",
        doc="The device, by its datasheet's rates.",
        default="a100-80gb-sxm",
        choices=tuple(RATES),
    ),
    Parameter(
        name="tp_size",
        kind="count",
        doc="Devices that share the model's products (tensor parallelism).",
        default=8,
        minimum=1,
    ),
    Parameter(name="batch_rows", kind="count", doc="Tokens of the batch.", default=2048, minimum=2),
    Parameter(
        name="exchange",
        kind="number",
        doc="What memory and network reach of their rate on 0.4 of the device; 0.4 leaves nothing to be gained.",
        default=0.8,
        minimum=0.4,
    ),
    Parameter(
        name="start_latency",
        kind="duration",
        doc="That every nano-batch takes besides.",
        default=3e-6,
    ),
)
