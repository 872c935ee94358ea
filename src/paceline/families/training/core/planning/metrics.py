"""Metrics that several operations have, with their contracts, in the order in which reports show them; free of torch.

What ranks send, and what they hold and how far they are apart, is in modules of its own. An operation puts its own
metrics between these groups.
"""

from __future__ import annotations

from paceline.base.families.family import ANY, NOT_NEGATIVE, SHARE, TIME_MARGIN, DerivedMetric, Metric, Params
from paceline.families.training.api.sizes import num_symbols, size_of
from paceline.families.training.core.planning.contracts import LOSS

_STEP = {
    "timer": "the host's performance counter around a part of a step, the device idle at both ends of a window",
    "sample": "seconds of one step on the slowest rank, averaged over a window of steps",
    "excluded": "drawing of batches, copies of weights for evaluation",
}
_TARGET = {
    "target": "target_excess above the entropy rate, by linear interpolation between evaluations",
    "miss": "absent, with the loss that was reached",
}


def _step_part(name: str, doc: str) -> Metric:
    return Metric(
        name=name, unit="s", better="lower", doc=doc, contract=_STEP, statistic="mean", margin=TIME_MARGIN
    )


EVAL_LOSS = Metric(
    name="eval_loss",
    unit="nat",
    bounds=NOT_NEGATIVE,
    better="lower",
    doc="Loss on held-out text after the last step; its samples are the curve over the evaluations.",
    contract=LOSS,
    statistic="last",
    compared_by="difference",
    margin=0.01,
    suspicious_gain=0.2,
)

EXCESS_LOSS = Metric(
    name="excess_loss",
    unit="nat",
    bounds=ANY,
    better="lower",
    doc="eval_loss above the entropy rate of the synthetic language, which no model can undercut.",
    contract=LOSS | {"limit": "entropy rate of the chain, from its stationary distribution"},
    statistic="last",
    compared_by="difference",
    margin=0.01,
)

RUN_METRICS: tuple[Metric, ...] = (
    Metric(
        name="time_per_token",
        unit="s",
        better="lower",
        doc="Wall-clock time of one token of the global batch, everything included that training needs.",
        contract={
            "timer": "the host's performance counter, the device idle at both ends of a window",
            "sample": "seconds of a window of steps on the slowest rank, over the window's tokens of all ranks",
            "warm-up": "a few steps of another replica of the technique",
            "excluded": "drawing of batches, copies of weights for evaluation, evaluation",
            "included": "communication that is still under way after the last step",
        },
        statistic="mean",
        margin=TIME_MARGIN,
    ),
    Metric(
        name="bare_time_per_token",
        unit="s",
        better="lower",
        doc="The same of a script with PyTorch alone, in turn with the harness's windows (calibration).",
        contract={"timer": "as time_per_token", "sample": "as time_per_token"},
        statistic="mean",
        margin=TIME_MARGIN,
    ),
    EVAL_LOSS,
    EXCESS_LOSS,
    Metric(
        name="train_loss",
        unit="nat",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Loss on the batches of the last window, before each update; its samples are the windows.",
        contract={
            "sample": "as forward_backward returned it, mean over the steps of a window and over ranks"
        },
        statistic="last",
        compared_by="difference",
    ),
)
"""How fast training is, and what it comes to."""

TIMES: tuple[Metric, ...] = (
    Metric(
        name="mfu",
        clock="machine",
        unit="ratio",
        bounds=SHARE,
        better="higher",
        doc="Operations of forward and backward in one second over the datasheet's peak of all ranks' devices.",
        contract={
            "operations": "6 for each weight that a token is multiplied with, 6·layers·context·width for causal "
            "attention; of experts those that a token uses, and the gate; a third of it where nothing is trained; "
            "recomputation is not counted",
            "peak": "dense, of the operands' dtype, by the vendor's datasheet; absent where none is listed",
            "sample": "a window of steps on the slowest rank",
        },
        statistic="mean",
        margin=TIME_MARGIN,
    ),
    _step_part(
        "compute_s",
        "Forward and backward of one step; for overlapping techniques what they do meanwhile, too.",
    ),
    _step_part("gradients_s", "Exchange of gradients in one step."),
    _step_part("update_s", "The optimiser in one step."),
    _step_part("parameters_s", "Exchange of parameters after the update in one step."),
    _step_part("communicate_s", "Time inside the communicator in one step, wherever it falls."),
    Metric(
        name="comm_time_fraction",
        clock="machine",
        unit="ratio",
        bounds=SHARE,
        better="lower",
        doc="Share of a step that a rank spends inside the communicator, mean over ranks: the bubble of a pipeline.",
        contract={
            "timer": "host clock around every send, receive and wait of each rank",
            "sample": "mean over ranks of a window's seconds inside the communicator over its seconds",
        },
        statistic="mean",
        compared_by="difference",
    ),
)
"""What a step's time goes to."""

TARGETS: tuple[Metric, ...] = (
    Metric(
        name="time_to_target",
        unit="s",
        better="lower",
        doc="Training time until the target loss.",
        contract=_TARGET,
        statistic="last",
        margin=TIME_MARGIN,
    ),
    Metric(
        name="bytes_to_target",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sent until the target loss.",
        contract=_TARGET,
        statistic="last",
    ),
)


def experts_of(params: Params) -> dict[str, int]:
    """Return the parameters of experts that the closed forms of a size take; none where layers have a perceptron."""
    experts, top_k = params.get("experts"), params.get("top_k", 1)
    return {"experts": int(experts), "top_k": int(top_k or 1)} if experts else {}


def flops_per_token(params: Params) -> float | None:
    """Return the operations that a point's model takes for one token; all figures of operations are made from it.

    Forward and backward, as ``Size.flops_per_token`` counts them; forward alone, a third of it, where a trace's routes
    are read and nothing is trained. None where some weights alone are trained: what backward leaves out then depends on
    where they are; and of a model of one's own.

    Args:
        params: Of the point, in base units.
    """
    if params.get("trainable", "all") != "all" or params.get("model") is not None:
        return None
    size, context = size_of(params), params["context"]
    assert isinstance(context, int)
    whole = size.flops_per_token(num_symbols(size, str(params["data"])), context, **experts_of(params))
    return whole / 3 if "routes" in params else whole


def _tokens_per_s(params: Params, seconds: float) -> float | None:
    return 1.0 / seconds if seconds > 0 else None


def _bytes_per_token(params: Params, sent: float) -> float | None:
    batch, context = params["batch"], params["context"]
    assert isinstance(batch, int)
    assert isinstance(context, int)
    return sent / (batch * context)


def _kernel_over_busiest(params: Params, carried: float, busiest: float) -> float | None:
    """Return at most kernel_over_counted, and no less where all ranks send alike: records of any age have both."""
    ranks = params["ranks"]
    assert isinstance(ranks, int)
    # The busiest rank's bytes times the ranks are at least what all ranks sent, so this is at most the true ratio.
    return carried / (ranks * busiest)


def _model_flops(params: Params, seconds: float) -> float | None:
    operations, ranks = flops_per_token(params), params["ranks"]
    assert isinstance(ranks, int)
    if operations is None or seconds <= 0:
        return None
    return operations / seconds / ranks


DERIVED: tuple[DerivedMetric, ...] = (
    DerivedMetric(
        name="tokens_per_s",
        unit="token/s",
        source="time_per_token",
        formula="1 / time_per_token",
        compute=_tokens_per_s,
    ),
    DerivedMetric(
        name="bytes_per_token",
        unit="B",
        source="wire_bytes",
        formula="wire_bytes / (batch × context)",
        compute=_bytes_per_token,
    ),
    DerivedMetric(
        name="kernel_over_busiest",
        unit="ratio",
        source="kernel_bytes_total",
        second_source="wire_bytes",
        formula="kernel_bytes_total / (ranks × wire_bytes)",
        compute=_kernel_over_busiest,
    ),
    DerivedMetric(
        name="model_flops_per_rank",
        unit="FLOP/s",
        source="time_per_token",
        formula="operations of a token / time_per_token / ranks",
        compute=_model_flops,
    ),
)
