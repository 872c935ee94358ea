"""Parameters that several operations share, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.load import arrivals
from paceline.families.serving.core.model_sizes import SIZES
from paceline.families.serving.core.workloads import text_tokens, traces
from paceline.families.serving.core.workloads.conversation_choice import LengthLimits
from paceline.families.serving.core.workloads.drawn import (
    AT_ONCE,
    CLOSED,
    INDEPENDENT,
    SESSIONS,
    SHARED,
    WORKFLOWS,
)
from paceline.families.serving.core.workloads.traced_calls import ALL_TURNS, FIRST_TURNS, TRACED

REQUESTS = Parameter(
    name="requests",
    kind="count",
    doc="Calls of a launch.",
    default=100,
    minimum=1,
)
OUTPUT_TOKENS = Parameter(
    name="output_tokens",
    kind="count",
    doc="Mean tokens of an answer.",
    default=32,
    minimum=1,
)
PROMPT_TOKENS = Parameter(
    name="prompt_tokens",
    kind="count",
    doc="Mean tokens of a prompt, without what is shared or carried.",
    default=64,
    minimum=1,
)
LOAD = Parameter(
    name="load",
    kind="number",
    doc="Calls a second over those that whole devices serve when all calls are there at the start; the pattern of "
    "arrivals is stretched to it, since what a machine carries is not known before its costs are. Of ranks that "
    "share a model: over those that the baseline serves.",
    default=0.8,
    minimum=0.01,
)
RANKS = Parameter(
    name="ranks",
    kind="count",
    doc="That share the model.",
    default=2,
    minimum=1,
)
RANK_LINKS: tuple[Parameter, ...] = (
    Parameter(
        name="rank_link",
        kind="rate",
        doc="Out of a rank, to all others together.",
        default=1e9,
        ours=True,
    ),
    Parameter(
        name="rank_link_delay",
        kind="duration",
        doc="Of each message that a rank sends.",
        default=1e-5,
    ),
)
"""Between ranks, each of which has a link of its own."""
_MODEL: tuple[Parameter, ...] = (
    Parameter(
        name="model",
        kind="choice",
        doc="Size of the engine's model; its weights are random and drawn from a seed.",
        default="tiny",
        choices=tuple(SIZES),
    ),
    Parameter(
        name="dtype",
        kind="choice",
        doc="Of weights and cache.",
        default="float32",
        choices=("float32", "bfloat16"),
    ),
)
_TRAFFIC: tuple[Parameter, ...] = (
    Parameter(
        name="workload",
        kind="choice",
        doc="independent calls; sessions, whose turns carry all that was said before; workflows of agents, whose calls "
        "hand out branches and wait for all of them; calls with shared prefixes; trace: lengths (and shared blocks) "
        "of a file of somebody's own.",
        default=INDEPENDENT,
        choices=(INDEPENDENT, SESSIONS, WORKFLOWS, SHARED, TRACED),
    ),
    Parameter(name="trace", kind="text", doc="Absolute path of the trace's file.", form=traces.wrong_path),
    Parameter(
        name="trace_format",
        kind="text",
        doc="mooncake (JSON lines, ms, blocks of 512 tokens), bailian (JSON lines, s, blocks of 16), azure (CSV) or "
        "burstgpt (CSV). mooncake/64 has blocks of 64 tokens. sharegpt: conversations with their words (JSON or JSON "
        "lines, 'conversations' or 'messages'), which need a tokenizer.",
        default=traces.MOONCAKE,
        form=traces.wrong_format,
    ),
    Parameter(
        name="trace_scale",
        kind="number",
        doc="Factor on all lengths of a trace, for models that know less than the trace's did. Lengths are rounded, "
        "and have one token at least; not of conversations.",
        default=1.0,
        minimum=1e-6,
    ),
    Parameter(
        name="tokenizer",
        kind="text",
        doc="Absolute path of a model's folder, or of a tokenizer.json, that counts the tokens of conversations.",
        form=text_tokens.wrong_path,
    ),
    Parameter(
        name="trace_turns",
        kind="choice",
        doc="Of conversations: first: the first two turns of each are a call, as vLLM takes them; all: whole "
        "conversations, each turn after the answer to the one before.",
        default=FIRST_TURNS,
        choices=(FIRST_TURNS, ALL_TURNS),
    ),
    Parameter(
        name="trace_min_tokens",
        kind="count",
        doc="Least tokens of a conversation's prompt, and of its answer; others are left out and counted.",
        default=LengthLimits().min_tokens,
        minimum=1,
    ),
    Parameter(
        name="trace_max_prompt",
        kind="count",
        doc="Most tokens of a conversation's prompt.",
        default=LengthLimits().max_prompt_tokens,
        minimum=1,
    ),
    Parameter(
        name="trace_max_total",
        kind="count",
        doc="Most tokens of a conversation's prompt and answer, with all that was said before.",
        default=LengthLimits().max_total_tokens,
        minimum=2,
    ),
    Parameter(
        name="arrivals",
        kind="choice",
        doc="When calls (or sessions) are due: constant, poisson or gamma gaps of an open loop; closed: when a "
        "place is free; at-once: all at the start; trace: the trace's own pattern, stretched to the rate.",
        default=arrivals.POISSON,
        choices=(arrivals.CONSTANT, arrivals.POISSON, arrivals.GAMMA, CLOSED, AT_ONCE, TRACED),
    ),
    Parameter(
        name="rate_per_s",
        kind="number",
        doc="Calls (or sessions) a second of an open loop.",
        default=10.0,
        minimum=0.001,
    ),
    Parameter(
        name="burstiness",
        kind="number",
        doc="Squared coefficient of variation of gamma gaps; 1 is Poisson.",
        default=1.0,
        minimum=0.01,
    ),
    Parameter(
        name="concurrency",
        kind="count",
        doc="Places of a closed loop; each takes a call, or a session to its end.",
        default=8,
        minimum=1,
    ),
    Parameter(
        name="lengths",
        kind="choice",
        doc="How lengths lie about their means: fixed, uniform (half to one and a half), lognormal (sigma 1, "
        "cut at four times the mean).",
        default="uniform",
        choices=("fixed", "uniform", "lognormal"),
    ),
    PROMPT_TOKENS,
    Parameter(
        name="prefixes",
        kind="count",
        doc="How many different shared prefixes there are.",
        default=8,
        minimum=1,
    ),
    Parameter(name="prefix_tokens", kind="count", doc="Tokens of a shared prefix.", default=256, minimum=1),
    Parameter(
        name="turns",
        kind="count",
        doc="Turns of a session; of a workflow how often branches are handed out.",
        default=4,
        minimum=1,
    ),
    Parameter(
        name="branches",
        kind="count",
        doc="Calls that a workflow hands out at once, and waits for.",
        default=3,
        minimum=1,
    ),
    Parameter(
        name="think_s",
        kind="duration",
        doc="Mean time between an answer and the next call of a session, or of a workflow.",
        default=0.2,
    ),
    Parameter(name="tenants", kind="count", doc="Clients that share the server.", default=1, minimum=1),
    Parameter(
        name="heavy_tenant_factor",
        kind="number",
        doc="How many times the calls of another the first tenant has.",
        default=1.0,
        minimum=0.001,
    ),
)
_MEMORY: tuple[Parameter, ...] = (
    Parameter(name="block_size", kind="count", doc="Tokens of a block of the cache.", default=16, minimum=1),
    Parameter(name="num_blocks", kind="count", doc="Blocks of the cache.", default=512, minimum=2),
    Parameter(name="max_batch", kind="count", doc="Most calls that a step computes.", default=32, minimum=1),
    Parameter(
        name="token_budget", kind="count", doc="Most tokens that a step computes.", default=256, minimum=1
    ),
)
_OBJECTIVES: tuple[Parameter, ...] = (
    Parameter(name="slo_ttft", kind="duration", doc="Objective of the time to first token.", default=0.5),
    Parameter(name="slo_tpot", kind="duration", doc="Objective of the time per output token.", default=0.05),
)


def on_engine(*own: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of an operation about the reference engine, or about what it costs.

    Args:
        own: What it has besides, between the engine's and the objectives of its calls.
    """
    return (REQUESTS, OUTPUT_TOKENS, *_MODEL, *_TRAFFIC, *_MEMORY, *own, *_OBJECTIVES)


def on_endpoint(*own: Parameter) -> tuple[Parameter, ...]:
    """Return the parameters of an operation about a server of which only the address is known.

    Args:
        own: What it has besides, between the calls' and their objectives.
    """
    return (REQUESTS, OUTPUT_TOKENS, *_TRAFFIC, *own, *_OBJECTIVES)
