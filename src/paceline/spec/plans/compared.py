"""What a suite compares, by which margins, and the plan's rule for measuring it until decided."""

from __future__ import annotations

from typing import Any

from paceline.base.units import parse_duration
from paceline.spec.suites.grammar import Protocol
from paceline.spec.suites.launches import Launches
from paceline.spec.suites.suite import Suite
from paceline.stats.sequential import CORRECTION, design


def compared_metrics(suite: Suite) -> list[str]:
    """Return the metrics that a suite compares: those that it names, else the family's default."""
    return list(suite.model.metrics) or list(suite.family.default_metrics)


def margin_of(suite: Suite, name: str) -> float:
    """Return the margin of equivalence of a metric in a suite."""
    setting = suite.model.metrics.get(name)
    if setting is not None and setting.margin is not None:
        return setting.margin
    return suite.family.metric(name).margin


def _is_diagnostic(suite: Suite, name: str) -> bool:
    setting = suite.model.metrics.get(name)
    return setting is not None and setting.diagnostic


def planned_protocol(model: Protocol, launches: Launches | None, budget_s: float | None) -> dict[str, Any]:
    """Return the protocol of a plan's blocks.

    Args:
        model: The suite's, with its tier.
        launches: What a person asked for instead: a number, or a range in which it is measured until decided.
        budget_s: The time that a person gave the whole run; a suite that has a fixed number of launches is then
            measured until decided, too.

    Returns:
        Its settings; ``launches`` is the most. Until decided there are also ``until``, ``looks``, ``level`` (nominal,
        of each look), and ``budget_s``. ``instances`` is there above 1.

    Raises:
        ValueError: Too few launches before the first look.
    """
    protocol = model.model_dump(exclude={"until", "budget"})
    protocol["timeout_s"] = parse_duration(protocol.pop("timeout"))
    if model.instances == 1:
        del protocol["instances"]  # so that plans without it stay what they were
    chosen = launches or model.planned_launches
    asked = launches is not None and launches.most is not None
    if not asked and budget_s is None and (launches is not None or model.until == "launches"):
        protocol["launches"] = chosen.first
        return protocol
    chosen = chosen.until_decided()
    own_s = parse_duration(model.budget) if model.budget is not None and budget_s is None else None
    assert chosen.most is not None
    found = design(chosen.first, chosen.most, budget=budget_s is not None or own_s is not None)
    return {
        **protocol,
        "launches": chosen.most,
        "until": "decided",
        "looks": list(found.looks),
        "level": found.level,
        "budget_s": own_s,
    }


def stop_rule(suite: Suite, protocol: dict[str, Any]) -> dict[str, Any]:
    """Return what a launcher needs to end a suite's blocks once decided (``paceline.worker.launches.stopping``)."""
    looks = protocol["looks"]
    found = design(looks[0], looks[-1], budget=False)
    headline = [name for name in compared_metrics(suite) if not _is_diagnostic(suite, name)]
    metrics = [(suite.family.metric(name), margin_of(suite, name)) for name in headline]
    return {
        "looks": looks,
        "budget_s": protocol["budget_s"],
        "critical": found.critical(protocol["level"]),
        "critical_difference": found.critical(protocol["level"] / CORRECTION),
        "metrics": [
            {
                "name": metric.name,
                "kind": metric.compared_by,
                "margin": margin,
                "better": metric.better,
                "statistic": metric.statistic,
                "timed": metric.timed,
            }
            for metric, margin in metrics
        ],
    }
