"""A made-up run of the training family, for tests of what its pages show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import record_factory

from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord

SUITE = "training/example"
BASELINE = "ddp-ring"
POINT = {"op": "data_parallel", "size": "nano", "batch": 4, "context": 32, "data": "markov", "steps": 4}
CURVES: Mapping[str, Mapping[str, list[float]]] = {
    BASELINE: {
        "tokens": [0.0, 1e2, 1e3, 1e4],
        "seconds": [0.0, 1.0, 10.0, 100.0],
        "bytes": [0.0, 1e3, 1e4, 1e5],
        "excess_loss": [1.4, 1.0, 0.6, 0.2],
    },
    "diloco": {
        "tokens": [0.0, 1e2, 1e3, 1e4],
        "seconds": [0.0, 0.5, 5.0, 50.0],
        "bytes": [0.0, 40.0, 400.0, 4e3],
        "excess_loss": [1.4, 1.1, 0.7, 0.3],
    },
    "terngrad": {
        "tokens": [0.0, 1e2, 1e3, 1e4],
        "seconds": [0.0, 2.0, 20.0, 200.0],
        "bytes": [0.0, 80.0, 800.0, 8e3],
        "excess_loss": [1.4, 1.2, 0.9, 0.8],
    },
    "ddp": {
        "tokens": [0.0, 1e2, 1e3, 1e4],
        "seconds": [0.0, 1.5, 15.0, 150.0],
        "excess_loss": [1.4, 1.0, 0.6, 0.2],
    },
}
"""Medians over launches; nobody sees the bytes of ddp, terngrad is beaten by diloco in bytes and loss."""
SHIFT = 0.01
"""Nats by which the losses of one launch lie above those of the one before; the same for all techniques."""
PARTS = {"compute_s": 0.5, "gradients_s": 0.25, "update_s": 0.125, "parameters_s": 0.0}


def training_record(
    curves: Mapping[str, Mapping[str, list[float]]] = CURVES,
    *,
    launches: int = 3,
    quantity: str = "excess_loss",
    counted_by: Mapping[str, str] | None = None,
) -> RunRecord:
    """Return a run of one point: each technique's curve, with the metrics that follow from it.

    Args:
        curves: Technique → columns of its curve; losses as ``excess_loss``.
        launches: Number of launches; the losses of the middle one are those of the curves.
        quantity: What the losses are called in the record.
        counted_by: Technique → what its bytes were counted by, where it is not the communicator.
    """
    suite = {"suite": SUITE, "version": 1, "family": "training", "baseline": BASELINE, "claims": []}
    run = record_factory.make_run(suites=[suite | {"metrics": {"time_per_token": 0.02, "eval_loss": 0.01}}])
    lines: list[Measurement] = []
    for label, columns in curves.items():
        for launch in range(launches):
            shift = SHIFT * (launch - (launches - 1) / 2)
            losses = [loss + shift for loss in columns["excess_loss"]]
            curve: dict[str, Any] = {k: v for k, v in columns.items() if k != "excess_loss"}
            curve[quantity] = losses
            if "bytes" in curve:
                curve["bytes_from"] = (counted_by or {}).get(label, "communicator")
            drawn: dict[str, Sequence[float]] = {
                "time_per_token": [columns["seconds"][-1] / columns["tokens"][-1]] * 2,
                "eval_loss": losses,
                **{name: [share * columns["seconds"][-1]] for name, share in PARTS.items()},
            }
            if quantity == "excess_loss":
                drawn["excess_loss"] = losses
            if "bytes" in curve:
                drawn["wire_bytes"] = [columns["bytes"][-1] / 4]
            for number, (metric, samples) in enumerate(drawn.items()):
                lines.append(
                    record_factory.measurement(
                        run,
                        label,
                        launch,
                        samples,
                        metric=metric,
                        family="training",
                        suite=SUITE,
                        params=POINT,
                        role="baseline" if label == BASELINE else "technique",
                        accounting={"curve": curve} if number == 0 else None,
                    )
                )
    return record_factory.in_memory(run, lines)
