"""The training family: what makes a point legal, how long it takes, and what reports draw of it; free of torch."""

from __future__ import annotations

from paceline.base.family import CurveSpec, Family, FrontierSpec, Params, SplitSpec
from paceline.families.training.api.sizes import size_of, vocabulary
from paceline.families.training.core.metrics import DERIVED, METRICS, experts_of
from paceline.families.training.core.parameters import (
    CHECKPOINT,
    CHURN,
    DATA_PARALLEL,
    DATA_PARALLEL_ALONE,
    EXPERT_INFERENCE,
    EXPERT_PARALLEL,
    FINE_TUNE,
    PARAMETERS,
    PIPELINE_PARALLEL,
    WHOLE_BATCH,
)
from paceline.families.training.ops.churn import parameters as faults

SHARE_ROUNDING = 1e-6
CURVE_AXES = (("tokens", "token"), ("seconds", "s"), ("bytes", "B"))
COSTS = ("wire_bytes", "kernel_bytes_total", "token_s")
"""What a loss is traded against."""
PROVED_STEPS = 6
"""Steps of a technique's proofs."""
ESTIMATED_RATE = 8e10
"""Operations a second, for the estimate: what was seen on two cores with models of 0.3 million parameters."""


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    problems: list[str] = []
    ranks, batch, steps = _int(params, "ranks"), _int(params, "batch"), _int(params, "steps")
    microbatches = _int(params, "microbatches")
    if params["op"] == PIPELINE_PARALLEL:
        if batch % microbatches:
            problems.append(f"batch {batch} cannot be split into {microbatches} microbatches")
    elif microbatches > 1:
        problems.append(f"microbatches are for {PIPELINE_PARALLEL}")
    if params["away"] != "nothing" and ranks < 2:
        problems.append("away needs at least two ranks: somebody must go on")
    if params["op"] != DATA_PARALLEL:
        problems += [
            f"{name} {params[name]} is for {DATA_PARALLEL}, and not for {params['op']}"
            for name, nothing in DATA_PARALLEL_ALONE.items()
            if params[name] != nothing
        ]
    rows = batch
    if params["op"] not in WHOLE_BATCH:
        rows = batch // ranks
        if batch % ranks:
            problems.append(f"batch {batch} cannot be split between {ranks} ranks")
    size = size_of(params)
    if size.heads % size.num_kv_heads:
        problems.append(
            f"kv_heads {size.kv_heads} does not divide the {size.heads} heads of size {params['size']}"
        )
    if params["op"] == FINE_TUNE:
        if rows % _int(params, "probes"):
            problems.append(f"{rows} sequences of a rank cannot be split between {params['probes']} probes")
        if params["data"] != "markov":
            problems.append("fine_tune needs data that can change: markov")
    problems += _check_experts(params) + _check_windows(params)
    problems += faults.problems(params) if params["op"] == CHURN else []
    if steps < _int(params, "evaluations"):
        problems.append(f"{params['evaluations']} evaluations do not fit into {steps} steps")
    alike = params["alike"]
    assert isinstance(alike, int | float)
    if alike > 1:
        problems.append(f"alike is a share, at most 1, and not {alike}")
    elif abs(alike * rows - round(alike * rows)) > SHARE_ROUNDING:
        problems.append(f"alike {alike} of {rows} sequences a rank is no whole number")
    data = str(params["data"])
    if data not in ("markov", "bytes") and not data.startswith(("bytes:", "hf:")):
        problems.append(
            f"data '{data}' is not one of: markov, bytes, bytes:PATH, hf:NAME@REVISION, hf:FOLDER"
        )
    if params["target_excess"] is not None and data != "markov":
        problems.append("target_excess needs data with a known entropy rate: markov")
    return problems


def _check_windows(params: Params) -> list[str]:
    """Return what is illegal about the samples of throughput."""
    problems: list[str] = []
    steps = _int(params, "steps")
    if steps < 2 * _int(params, "window"):
        problems.append(
            f"steps {steps} holds fewer than two windows of {params['window']}: the first is warm-up"
        )
    if params["op"] == CHECKPOINT and steps < 3 * _int(params, "window"):
        problems.append(
            f"steps {steps} holds fewer than three windows of {params['window']}: one of them saves"
        )
    return problems


def _check_experts(params: Params) -> list[str]:
    """Return what is illegal where ranks share experts."""
    problems: list[str] = []
    if params["op"] == EXPERT_INFERENCE:
        affinity = params["affinity"]
        assert isinstance(affinity, int | float)
        if affinity > 1:
            problems.append(f"affinity is a probability, at most 1, and not {affinity}")
        if _int(params, "batch") < _int(params, "ranks"):
            problems.append(f"{params['batch']} sequences are too few for {params['ranks']} ranks")
    if params["op"] == EXPERT_PARALLEL and _int(params, "top_k") > _int(params, "experts"):
        problems.append(f"a token cannot go to {params['top_k']} of {params['experts']} experts")
    return problems


def _estimate_s(params: Params) -> float:
    """Seconds of one technique: training, proofs on every rank, evaluations; at what two cores do of small products.

    A rank's proofs are of the whole batch; an evaluation is a third of a step's operations. Waiting for links and for
    cores that other ranks have is left out.
    """
    size, context = size_of(params), _int(params, "context")
    steps, ranks = _int(params, "steps"), _int(params, "ranks")
    operations = size.flops_per_token(vocabulary(str(params["data"])), context, **experts_of(params))
    rows = float((steps + PROVED_STEPS * (1 + ranks)) * _int(params, "batch"))
    rows += (_int(params, "evaluations") + 1) * _int(params, "eval_batch") / 3
    first = faults.PEERS_START_S if params["op"] == CHURN else 2.0
    return first + rows * context * operations / ESTIMATED_RATE + steps * 0.005 * ranks


def _int(params: Params, key: str) -> int:
    value = params[key]
    assert isinstance(value, int)
    return value


FAMILY = Family(
    name="training",
    summary="Training of one language model on several ranks: time, bytes, memory and loss at equal tokens.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("token_s", "eval_loss", "wire_bytes"),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    derived=DERIVED,
    curves=(
        CurveSpec(quantity="excess_loss", unit="nat", over=CURVE_AXES),
        CurveSpec(quantity="eval_loss", unit="nat", over=CURVE_AXES),
    ),
    swept=("time_to_target",),
    tuned_metrics=(
        "eval_loss",
        "excess_loss",
        "train_loss",
        "loss_fall",
        "time_to_target",
        "bytes_to_target",
    ),
    scaled=("token_s",),
    frontiers=(
        *(FrontierSpec(across=cost, up="excess_loss") for cost in COSTS),
        *(FrontierSpec(across=cost, up="eval_loss", unless="excess_loss") for cost in COSTS),
    ),
    splits=(
        SplitSpec(title="one step", parts=("compute_s", "gradients_s", "update_s", "parameters_s")),
        SplitSpec(
            title="a rank's memory",
            parts=("parameter_bytes", "gradient_bytes", "optimizer_bytes", "extra_bytes", "scratch_bytes"),
        ),
    ),
)
