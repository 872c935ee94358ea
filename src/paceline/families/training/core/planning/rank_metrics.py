"""Metrics of what ranks hold and how far they are apart, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, Metric

_STATE = {
    "counted": "storages reachable from the technique after its gradient exchange, each once, by walking its objects",
    "when": "the last step and three others that a technique cannot know; the largest",
    "ranks": "the rank that holds most",
}
_DIAGNOSED = {
    "sample": "as the technique found it in each step, mean over a window",
    "proof": "in the gate, beside the gradients of every rank's sequences computed by one process",
}


def _state(name: str, doc: str) -> Metric:
    return Metric(name=name, unit="B", better="lower", doc=doc, contract=_STATE, statistic="max")


HELD: tuple[Metric, ...] = (
    _state(
        "state_bytes",
        "All state that a rank holds: parameters, gradients, the optimiser's and what is kept beside it. A technique "
        "that states its closed form is refused where it holds more or less.",
    ),
    _state("parameter_bytes", "Parameters that a rank holds."),
    _state("gradient_bytes", "Gradients that a rank holds after their exchange."),
    _state("optimizer_bytes", "State of the optimiser that a rank holds."),
    _state(
        "extra_bytes",
        "State that a rank keeps beside the optimiser's: outer momentum, residuals, copies of weights.",
    ),
    _state("scratch_bytes", "Buffers that a rank holds beside all state."),
    Metric(
        name="transient_bytes",
        unit="B",
        better="lower",
        doc="Most that one step had made and not yet freed at one time: activations, gradients and buffers beside what "
        "is held between steps; parameters that come and go count while they are there.",
        contract={
            "counter": "storages that torch's operations return, from the first to the last reference",
            "when": "the last of the first proof's steps, which has the point's model and batch",
            "ranks": "the rank that needs most",
        },
        statistic="max",
    ),
    Metric(
        name="device_peak_bytes",
        unit="B",
        better="lower",
        doc="Most of a device's memory that torch's allocator had given out at once during training: state, "
        "activations and buffers; what libraries such as NCCL take for themselves is not among it.",
        contract={
            "counter": "the peak of the device's own allocator, reset before the first step; absent on the host",
            "ranks": "the rank that needs most",
        },
        statistic="max",
    ),
    Metric(
        name="divergence",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Largest distance of a replica's weights from the mean of all, over the mean's norm, after the last step.",
        contract={"norm": "Euclidean over all parameters, in float64"},
        statistic="max",
        compared_by="difference",
    ),
)
"""State, what a step makes beside it, and how far replicas are apart."""

DIAGNOSED: tuple[Metric, ...] = (
    Metric(
        name="gradient_norm_dispersion",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Standard deviation over ranks of their gradients' norms before averaging, over their mean.",
        contract=_DIAGNOSED,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gradient_cosine",
        unit="ratio",
        bounds=(-1.0, 1.0),
        better="higher",
        doc="Mean cosine between the gradients of two ranks before averaging, weighted by their norms.",
        contract=_DIAGNOSED,
        statistic="mean",
        compared_by="difference",
    ),
)
"""What a technique may find out about ranks' gradients."""

LINK_CLOCK = Metric(
    name="link_clock_ratio",
    clock="machine",
    unit="ratio",
    better="lower",
    doc="Training's seconds over those of a virtual clock of the shaped link; below 1 where exchanges are hidden.",
    contract={
        "clock": "seconds outside the communicator, slowest rank; bytes of the busiest over 0.93 of the link's "
        "rate; its messages times the delay",
        "exclusions": "nothing is hidden and nobody waits for a slower rank",
    },
)

RANK_METRICS: tuple[Metric, ...] = (*HELD, *DIAGNOSED, LINK_CLOCK)
