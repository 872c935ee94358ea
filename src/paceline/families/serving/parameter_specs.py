"""Parameters of the serving family, free of torch."""

from __future__ import annotations

from dataclasses import replace

from paceline.base.family import Parameter
from paceline.families.serving import traces
from paceline.families.serving.load import arrivals
from paceline.families.serving.model_sizes import SIZES
from paceline.families.serving.simulation.operators import RATES, SERVED
from paceline.families.serving.workloads import (
    AT_ONCE,
    CLOSED,
    INDEPENDENT,
    SESSIONS,
    SHARED,
    TRACED,
    WORKFLOWS,
)

SERVE, SIMULATE, PREDICT, DECODE, CACHE, OVERLAP, DISTRIBUTE, DENOISE = (
    "serve",
    "simulate",
    "predict",
    "decode",
    "cache",
    "overlap",
    "distribute",
    "denoise",
)
ON_ENGINE = (SERVE, SIMULATE, PREDICT, DISTRIBUTE)
"""Operations about the reference engine, or about what it costs."""

_ALL: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="serve: calls go to the reference engine over HTTP, and the technique schedules it. "
        "simulate: the technique deploys workers on devices, in virtual time from measured costs. "
        "predict: it says what configurations of the engine would take, which then are executed. "
        "decode: it decodes answers with a draft model beside copies of the target, in virtual time. "
        "cache: it says what a trained model keeps of the tokens before, and makes keys and values of it. "
        "overlap: it orders a batch's operators on one device, in virtual time from datasheets' rates. "
        "distribute: it computes the engine's steps on several ranks; their load is played in virtual time. "
        "denoise: it takes the noise out of images on several ranks.",
        required=True,
        choices=(SERVE, SIMULATE, PREDICT, DECODE, CACHE, OVERLAP, DISTRIBUTE, DENOISE),
    ),
    Parameter(
        name="requests",
        kind="count",
        doc="Calls of a launch.",
        default=100,
        minimum=1,
        only_for=(*ON_ENGINE, DECODE, CACHE),
    ),
    Parameter(
        name="output_tokens",
        kind="count",
        doc="Mean tokens of an answer.",
        default=32,
        minimum=1,
        only_for=(*ON_ENGINE, DECODE, CACHE, OVERLAP),
    ),
)
_ENGINE: tuple[Parameter, ...] = (
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
    Parameter(
        name="workload",
        kind="choice",
        doc="independent calls; sessions, whose turns carry all that was said before; workflows of agents, whose calls "
        "hand out branches and wait for all of them; calls with shared prefixes; trace: lengths (and shared blocks) "
        "of a file of somebody's own.",
        default=INDEPENDENT,
        choices=(INDEPENDENT, SESSIONS, WORKFLOWS, SHARED, TRACED),
    ),
    Parameter(name="trace", kind="text", doc="Absolute path of the trace's file."),
    Parameter(
        name="trace_format",
        kind="choice",
        doc="Mooncake (JSON lines), Azure's LLM inference traces (CSV) or BurstGPT (CSV).",
        default=traces.MOONCAKE,
        choices=traces.FORMATS,
    ),
    Parameter(
        name="trace_scale",
        kind="number",
        doc="Factor on all lengths of a trace, for models that know less than the trace's did.",
        default=1.0,
        minimum=1e-6,
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
    Parameter(name="concurrency", kind="count", doc="Places of a closed loop.", default=8, minimum=1),
    Parameter(
        name="lengths",
        kind="choice",
        doc="How lengths lie about their means: fixed, uniform (half to one and a half), lognormal (sigma 1).",
        default="uniform",
        choices=("fixed", "uniform", "lognormal"),
    ),
    Parameter(
        name="prompt_tokens",
        kind="count",
        doc="Mean tokens of a prompt, without what is shared or carried.",
        default=64,
        minimum=1,
        only_for=(*ON_ENGINE, OVERLAP),
    ),
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
        name="heavy",
        kind="number",
        doc="How many times the calls of another the first tenant has.",
        default=1.0,
        minimum=0.001,
    ),
    Parameter(name="block_size", kind="count", doc="Tokens of a block of the cache.", default=16, minimum=1),
    Parameter(name="num_blocks", kind="count", doc="Blocks of the cache.", default=512, minimum=2),
    Parameter(name="max_batch", kind="count", doc="Most calls that a step computes.", default=32, minimum=1),
    Parameter(
        name="token_budget", kind="count", doc="Most tokens that a step computes.", default=256, minimum=1
    ),
    Parameter(
        name="devices",
        kind="count",
        doc="That a deployment gets.",
        default=1,
        minimum=1,
        only_for=(SIMULATE,),
    ),
    Parameter(
        name="load",
        kind="number",
        doc="Calls a second over those that whole devices serve when all calls are there at the start; the pattern of "
        "arrivals is stretched to it, since what a machine carries is not known before its costs are. Of ranks that "
        "share a model: over those that the baseline serves.",
        default=0.8,
        minimum=0.01,
        only_for=(SIMULATE, DISTRIBUTE),
    ),
    Parameter(
        name="kv_link",
        kind="rate",
        doc="Between two memories, one way; keys and values go over it.",
        default=1.25e9,
        only_for=(SIMULATE,),
    ),
    Parameter(
        name="kv_link_delay",
        kind="duration",
        doc="Of such a link.",
        default=1e-4,
        only_for=(SIMULATE,),
    ),
    Parameter(
        name="plans",
        kind="count",
        doc="Configurations that are predicted and executed, 6 at most.",
        default=4,
        minimum=1,
        only_for=(PREDICT,),
    ),
    Parameter(
        name="ranks",
        kind="count",
        doc="That share the model.",
        default=2,
        minimum=1,
        only_for=(DISTRIBUTE, DENOISE),
    ),
    Parameter(
        name="rank_link",
        kind="rate",
        doc="Out of a rank, to all others together.",
        default=1e9,
        only_for=(DISTRIBUTE, DENOISE),
    ),
    Parameter(
        name="rank_link_delay",
        kind="duration",
        doc="Of each message that a rank sends.",
        default=1e-5,
        only_for=(DISTRIBUTE, DENOISE),
    ),
    Parameter(name="slo_ttft", kind="duration", doc="Objective of the time to first token.", default=0.5),
    Parameter(name="slo_tpot", kind="duration", doc="Objective of the time per output token.", default=0.05),
)
"""Of the reference engine's operations, all of them where a parameter names none."""
_DECODING: tuple[Parameter, ...] = (
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
_CACHED: tuple[Parameter, ...] = (
    Parameter(
        name="checkpoint",
        kind="choice",
        doc="The embedded model that reads; the reasoning family trains them.",
        default="strong",
        choices=("strong", "weak"),
    ),
    Parameter(
        name="bits",
        kind="count",
        doc="Of a kept number, for who quantises: 2, 3, 4 or 8.",
        default=4,
        minimum=2,
    ),
)
_ORDERED: tuple[Parameter, ...] = (
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
        name="ways",
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
_DENOISED: tuple[Parameter, ...] = (
    Parameter(name="images", kind="count", doc="That are denoised together.", default=32, minimum=4),
    Parameter(name="steps", kind="count", doc="Of the sampler, from noise to image.", default=50, minimum=2),
)

PARAMETERS: tuple[Parameter, ...] = (
    *_ALL,
    *(replace(p, only_for=p.only_for or ON_ENGINE) for p in _ENGINE),
    *(replace(p, only_for=(DECODE,)) for p in _DECODING),
    *(replace(p, only_for=(CACHE,)) for p in _CACHED),
    *(replace(p, only_for=(OVERLAP,)) for p in _ORDERED),
    *(replace(p, only_for=(DENOISE,)) for p in _DENOISED),
)
