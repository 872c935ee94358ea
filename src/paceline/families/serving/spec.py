"""Parameters of the serving family and the rules for its points, free of torch."""

from __future__ import annotations

import math

from paceline.errors import UserError
from paceline.families.serving import traces
from paceline.families.serving.load import arrivals
from paceline.families.serving.metric_specs import METRICS
from paceline.families.serving.model_sizes import SIZES
from paceline.families.serving.workloads import (
    AT_ONCE,
    CLOSED,
    INDEPENDENT,
    SESSIONS,
    SHARED,
    TRACED,
    WORKFLOWS,
    calls_together,
    draw_workload,
)
from paceline.family import CurveSpec, Family, FrontierSpec, Parameter, Params

SERVE, SIMULATE, PREDICT = "serve", "simulate", "predict"
TOKENS_PER_S = 1500.0
"""Of the tiny model on two slow cores, for estimates alone."""
ENGINE_START_S = 6.0
VIRTUAL_S = 4.0
MOST_PLANS = 6
LEAST_SHARE = 0.15
"""Of the point's blocks, what the smallest of the plans has."""

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="serve: calls go to the reference engine over HTTP, and the technique schedules it. "
        "simulate: the technique deploys workers on devices, in virtual time from measured costs. "
        "predict: it says what configurations of the engine would take, which then are executed.",
        required=True,
        choices=(SERVE, SIMULATE, PREDICT),
    ),
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
    Parameter(name="requests", kind="count", doc="Calls of a launch.", default=100, minimum=1),
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
    ),
    Parameter(name="output_tokens", kind="count", doc="Mean tokens of an answer.", default=32, minimum=1),
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
        "arrivals is stretched to it, since what a machine carries is not known before its costs are.",
        default=0.8,
        minimum=0.01,
        only_for=(SIMULATE,),
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
    Parameter(name="slo_ttft", kind="duration", doc="Objective of the time to first token.", default=0.5),
    Parameter(name="slo_tpot", kind="duration", doc="Objective of the time per output token.", default=0.05),
)


def _count(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value


def longest_context(params: Params) -> int:
    """Return the most tokens that a call can have, with its answer."""
    times = {"fixed": 1.0, "uniform": 1.5, "lognormal": 4.0}[str(params["lengths"])]
    turn = math.ceil(times * (_count(params, "prompt_tokens") + _count(params, "output_tokens")))
    if params["workload"] == SESSIONS:
        return turn * _count(params, "turns")
    if params["workload"] == WORKFLOWS:
        told = _count(params, "branches") * math.ceil(times * _count(params, "output_tokens"))
        return turn + _count(params, "turns") * (told + turn)
    return turn + (_count(params, "prefix_tokens") if params["workload"] == SHARED else 0)


def check(params: Params) -> list[str]:
    """Return what is wrong with a fully resolved point, in words."""
    wrong = _check_trace(params) + _check_virtual(params)
    if params["workload"] == TRACED:
        return wrong
    longest = longest_context(params)
    context = SIZES[str(params["model"])]["max_context"]
    if longest > context:
        wrong.append(f"a call can have {longest} tokens, and the {params['model']} model knows {context}")
    room = _count(params, "block_size") * _count(params, "num_blocks")
    if longest > room:
        wrong.append(f"a call can have {longest} tokens, and the cache has room for {room}")
    if _count(params, "token_budget") < _count(params, "max_batch"):
        wrong.append("token_budget is below max_batch: a step could not give every call a token")
    if _count(params, "requests") < calls_together(params):
        wrong.append(
            f"{params['workload']} have {calls_together(params)} calls each, more than there are requests"
        )
    return wrong


def _check_trace(params: Params) -> list[str]:
    traced = params["workload"] == TRACED
    if params["arrivals"] == TRACED and not traced:
        return ["arrivals of a trace need workload: trace"]
    if not traced:
        return []
    if not params["trace"]:
        return ["workload: trace needs the file's absolute path as 'trace'"]
    try:
        draw_workload(params, SIZES[str(params["model"])]["vocab"], 0)
    except UserError as error:
        return [str(error)]
    return []


def _check_virtual(params: Params) -> list[str]:
    """Return what virtual time cannot do."""
    if params["op"] == SERVE:
        return []
    wrong: list[str] = []
    if params["workload"] in (SESSIONS, WORKFLOWS):
        wrong.append("in virtual time nobody answers, so that no call waits for one: take independent calls")
    if params["arrivals"] == CLOSED:
        wrong.append("virtual time has open loops: take poisson, constant, gamma, at-once or trace")
    if params["op"] == PREDICT and _count(params, "plans") > MOST_PLANS:
        wrong.append(f"there are {MOST_PLANS} plans")
    if params["op"] == PREDICT and params["workload"] != TRACED:
        room = _count(params, "block_size") * _count(params, "num_blocks") * LEAST_SHARE
        if longest_context(params) > room:
            wrong.append(
                f"the smallest plan's cache has room for {room:.0f} tokens, fewer than a call can have"
            )
    return wrong


def _estimate_s(params: Params) -> float:
    if params["op"] != SERVE:
        return VIRTUAL_S
    requests = _count(params, "requests")
    tokens = requests * (_count(params, "prompt_tokens") / 8 + _count(params, "output_tokens"))
    if params["workload"] == SHARED:
        tokens += requests * _count(params, "prefix_tokens") / 8
    busy_s = tokens / TOKENS_PER_S
    open_loop = params["arrivals"] not in (CLOSED, AT_ONCE)
    arriving_s = requests / float(str(params["rate_per_s"])) if open_loop else 0.0
    return ENGINE_START_S + max(busy_s, arriving_s)


FAMILY = Family(
    name="serving",
    summary="Scheduling of a language model's server under load: latency from outside, throughput, fairness, cache.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("ttft_p90", "tpot_p90", "output_tokens_per_s", "attainment"),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    curves=(
        CurveSpec(quantity="ttft_s", unit="s", over=(("share_of_calls", "ratio"),), cumulative=True),
        CurveSpec(quantity="gap_s", unit="s", over=(("share_of_gaps", "ratio"),), cumulative=True),
    ),
    swept=("ttft_p90", "attainment"),
    loads=(("output_tokens_per_s", "ttft_p90"), ("output_tokens_per_s", "tpot_p90")),
    frontiers=(FrontierSpec(across="ttft_p90", up="output_tokens_per_s"),),
    isolated=True,
)
