"""Parameters of the serving family and the rules for its points, free of torch."""

from __future__ import annotations

import math

from paceline.base.errors import UserError
from paceline.base.family import CurveSpec, Family, FrontierSpec, Params
from paceline.families.serving.metric_specs import METRICS
from paceline.families.serving.model_sizes import REAL_SIZES, SIZES
from paceline.families.serving.parameter_specs import (
    CACHE,
    DECODE,
    DENOISE,
    DISTRIBUTE,
    OVERLAP,
    PARAMETERS,
    PREDICT,
    SERVE,
)
from paceline.families.serving.simulation.operators import SERVED
from paceline.families.serving.workloads import (
    AT_ONCE,
    CLOSED,
    SESSIONS,
    SHARED,
    TRACED,
    WORKFLOWS,
    calls_together,
    draw_workload,
)

TOKENS_PER_S = 1500.0
"""Of the tiny model on two slow cores, for estimates alone."""
ENGINE_START_S = 6.0
VIRTUAL_S = 4.0
DECODING_S = 2.5
CACHED_S = 10.0
ORDERING_S = 3.0
SHARING_S = 15.0
DENOISING_S = 0.005
"""Of an image and step, with all that proves and repeats it."""
MOST_ROWS = 8192
"""That are computed on a small model, too."""
MOST_TOKENS = 1_000_000
"""That a launch of ``decode`` decodes."""
MOST_PLANS = 6
LEAST_SHARE = 0.15
"""Of the point's blocks, what the smallest of the plans has."""


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
    if params["op"] == DECODE:
        return _check_decoding(params)
    if params["op"] == CACHE:
        return [] if params["bits"] in (2, 3, 4, 8) else ["bits are 2, 3, 4 or 8"]
    if params["op"] == OVERLAP:
        return _check_overlapping(params)
    if params["op"] == DENOISE:
        return []
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


def _check_decoding(params: Params) -> list[str]:
    wrong: list[str] = []
    if float(str(params["acceptance"])) > 1.0:
        wrong.append("acceptance is a probability")
    if not float(str(params["target_latency"])) > 0.0:
        wrong.append("target_latency is a time above zero")
    if _count(params, "requests") * _count(params, "output_tokens") > MOST_TOKENS:
        wrong.append(f"more than {MOST_TOKENS} tokens would be decoded in a launch")
    return wrong


def _check_overlapping(params: Params) -> list[str]:
    wrong: list[str] = []
    ways, served = _count(params, "ways"), SERVED[str(params["served"])]
    if served.kv_heads % ways:
        wrong.append(f"{served.kv_heads} heads of keys cannot be dealt out to {ways} devices")
    if float(str(params["exchange"])) > 1.0:
        wrong.append("exchange is a share of a rate: 1 at most")
    if _count(params, "batch_rows") > MOST_ROWS:
        wrong.append(f"a batch has {MOST_ROWS} rows at most")
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
    if params["op"] == PREDICT and params["workload"] in (SESSIONS, WORKFLOWS):
        wrong.append(
            "what is predicted is there at the start, and no call waits for another: take independent calls"
        )
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


def _estimate_s(params: Params) -> float | None:
    if params.get("model") in REAL_SIZES:
        return None  # the rate below is the tiny model's
    if params["op"] == DECODE:
        return DECODING_S
    if params["op"] == CACHE:
        return CACHED_S
    if params["op"] == OVERLAP:
        return ORDERING_S
    if params["op"] == DISTRIBUTE:
        return SHARING_S
    if params["op"] == DENOISE:
        return DENOISING_S * _count(params, "images") * _count(params, "steps")
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
    summary="A language model's server: latency under load from outside, throughput, fairness, caches, operators.",
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
    borrows={CACHE: "reasoning"},
    isolated=True,
    in_ranks=frozenset({DISTRIBUTE, DENOISE}),
)
