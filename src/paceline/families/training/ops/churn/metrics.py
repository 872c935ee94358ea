"""Metrics of training that loses peers, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.training.core.planning.metrics import EVAL_LOSS, EXCESS_LOSS

_CHURN = {
    "timer": "host monotonic clock of the observing rank, not of the peer",
    "sample": "one scripted run with a seeded schedule; a peer is killed with SIGKILL",
    "oracle": "digests of all peers' weights after every meeting and exchange; each exchange against the outer step on "
    "its members' mean",
}
_RECOVERED = _CHURN | {
    "begin": "the instant before the signal, noted by the family's code in the killed process, by the host's clock",
    "end": "the first exchange without the killed peer that is done on all survivors",
    "peers": "the survivor that needs most",
}


def _share(name: str, doc: str) -> Metric:
    return Metric(
        name=name,
        unit="ratio",
        better="higher",
        doc=doc,
        contract=_CHURN,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    )


CHURN_METRICS: tuple[Metric, ...] = (
    _share(
        "survived", "1 when all survivors do every step and every exchange without a new process (churn)."
    ),
    _share(
        "joined", "1 when a newcomer's weights are in a later exchange, and survivors do all steps (churn)."
    ),
    _share(
        "state_parity", "1 when survivors and newcomer end with the same SHA-256 of their weights (churn)."
    ),
    Metric(
        name="kill_recovery_steps",
        unit="steps",
        better="lower",
        doc="Steps from the kill to the first exchange among survivors alone: the one in progress counts, and one that "
        "ends a round is in progress until its exchange is done (churn).",
        contract=_RECOVERED,
        statistic="max",
        compared_by="difference",
    ),
    Metric(
        name="kill_recovery_s",
        unit="s",
        better="lower",
        doc="Seconds from the kill to the end of the first exchange among survivors alone (churn).",
        contract=_RECOVERED,
        margin=0.1,
    ),
    Metric(
        name="join_s",
        unit="s",
        better="lower",
        doc="Seconds from the call of a newcomer, whose process waits, to the first exchange that its weights are in "
        "(churn).",
        contract=_CHURN,
        margin=0.1,
    ),
)

METRICS: tuple[Metric, ...] = (EVAL_LOSS, EXCESS_LOSS, *CHURN_METRICS)
