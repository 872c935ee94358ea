"""Metrics of pipelines: what the simulator plays and foretells; free of torch."""

from __future__ import annotations

from paceline.base.families.family import SHARE, Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

_VIRTUAL = {
    "timer": "processor time of the rank's thread in every pass of one step, which a technique cannot know",
    "sample": "the schedule, played with these times; not a measured duration",
}
_MAKESPAN = {
    "predicted": "the schedule, played with the mean processor seconds of each kind of pass in each stage, a core for "
    "every rank, and messages that take no time",
    "sample": "a step; three or four of a run, which a technique cannot know",
}

PLAYED: tuple[Metric, ...] = (
    Metric(
        name="virtual_s",
        clock="virtual",
        unit="s",
        better="lower",
        doc="Virtual: forward and backward of one step as the simulator plays them from the processor's seconds of "
        "every measured pass, as if each rank had a core of its own and messages took no time.",
        contract=_VIRTUAL,
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="virtual_bubble_fraction",
        unit="ratio",
        bounds=SHARE,
        better="lower",
        doc="Virtual: the bubble of that play, the share of the makespan in which a rank does nothing, mean over "
        "ranks.",
        contract=_VIRTUAL,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="makespan_ratio",
        clock="machine",
        unit="ratio",
        better="neither",
        doc="Measured time of forward and backward of one step over what the simulator foretells: 1 where it is right.",
        contract=_MAKESPAN
        | {
            "measured": "from the first pass's begin to the last pass's end over all ranks, host clock; with fewer "
            "cores than ranks it holds waiting for a core, too"
        },
    ),
    Metric(
        name="virtual_makespan_ratio",
        unit="ratio",
        better="neither",
        doc="Virtual: virtual_s over what the simulator foretells, for machines that have fewer cores than ranks.",
        contract=_MAKESPAN | {"played": "virtual_s, from every pass's own processor seconds"},
    ),
)

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *TIMES, *PLAYED, *RANK_METRICS, *TARGETS)
