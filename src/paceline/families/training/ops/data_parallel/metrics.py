"""Metrics of data parallelism: how far ranks that train on their own are apart; free of torch."""

from __future__ import annotations

from paceline.base.families.family import ANY, NOT_NEGATIVE, Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import DIAGNOSED, HELD, LINK_CLOCK

_SEEN = {
    "sample": "the step before an evaluation, from what forward_backward left on every rank, by the harness",
    "exclusions": "looking is no part of any time",
    "sketch": "4096 places, random signs",
}

RECOVERY_STEPS = Metric(
    name="recovery_steps",
    unit="steps",
    better="lower",
    doc="Steps from the return of a rank that was away until its weights are no farther from the mean of all "
    "ranks' than in the last 25 steps before it left.",
    contract={
        "distance": "Euclidean over all parameters, over the mean's norm, from the weights it would ship"
    },
    statistic="max",
)

LOSS_DISPERSION = Metric(
    name="loss_dispersion",
    unit="nat",
    bounds=NOT_NEGATIVE,
    better="lower",
    doc="Standard deviation over ranks of their losses in a step; its samples are means over windows.",
    contract={"sample": "as forward_backward returned them on every rank, compared by the harness"},
    statistic="mean",
    compared_by="difference",
)

GAP_CLOSED = Metric(
    name="gap_closed",
    unit="ratio",
    bounds=ANY,
    better="higher",
    doc="Share that a technique closes of the gap in loss between ranks that send nothing and the baseline.",
    contract={
        "formula": "(a - l) / (a - b) of last losses: a no-communication, b the suite's baseline, l the technique",
        "sample": "one a launch, of techniques that began with the same weights and read the same batches",
        "least gap": "a tenth of the baseline's loss above a known entropy rate, else 0.02 of its loss; below: absent",
    },
    statistic="mean",
    compared_by="difference",
    margin=0.05,
)

SEEN: tuple[Metric, ...] = (
    Metric(
        name="gradient_norm_cv",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Standard deviation over ranks of their own gradients' norms, over their mean, seen by the harness.",
        contract=_SEEN,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gradient_cosine_similarity",
        unit="ratio",
        bounds=(-1.0, 1.0),
        better="higher",
        doc="Mean cosine between two ranks' own gradients, seen by the harness.",
        contract=_SEEN,
        statistic="mean",
        compared_by="difference",
    ),
)
"""What the harness sees of ranks' own gradients, in a few steps."""

METRICS: tuple[Metric, ...] = (
    *RUN_METRICS,
    *BYTE_METRICS,
    *TIMES,
    *HELD,
    RECOVERY_STEPS,
    LOSS_DISPERSION,
    GAP_CLOSED,
    *DIAGNOSED,
    LINK_CLOCK,
    *SEEN,
    *TARGETS,
)
