"""Speed never without quality: what a technique's results are worth, beside what they cost.

A family's layout names the metrics that say what a result is worth: a loss, an accuracy, an error, a share of answers
in time. A technique loses quality at a point where one of them is decided against it by more than its margin. Its gains
in time, tokens or bytes are then called ``faster, but worse (by …)``, and it ranks behind those that keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from paceline.analysis.compare import Comparison, ranks
from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.report.layout import layout_of
from paceline.report.words.estimates import format_verdict, verdict_text
from paceline.report.words.names import metric_label
from paceline.stats.verdicts import Verdict

BUT_WORSE = ", but worse (by "
"""Stands in the verdict of a gain that quality was paid for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """By how much a technique's results are worth less than the baseline's at a point."""

    comparison: Comparison
    """Of the metric of quality."""

    @property
    def text(self) -> str:
        """Its size and metric: ``0.118 in accuracy``."""
        c = self.comparison
        label = metric_label(c.metric)
        if c.kind == "ratio":
            return f"{abs(c.effect.value - 1):.2g} × in {label}"
        unit = "" if c.unit in ("ratio", "1") else c.unit
        size = format_quantity(abs(c.effect.value), unit) if unit else f"{abs(c.effect.value):.3g}"
        return f"{size} in {label}"


def losses(comparisons: Iterable[Comparison]) -> dict[tuple[int, str], Loss]:
    """Return (``id`` of a point, technique) → what it loses, for those that lose quality; the first metric tells.

    Args:
        comparisons: Of any points, with those of the metrics of quality among them.
    """
    found: dict[tuple[int, str], tuple[int, Loss]] = {}
    own = list(comparisons)
    for c in (*own, *_beside_exact_ones({id(c.point): c.point for c in own}.values())):
        least = layout_of(c.point.family).quality
        if c.metric not in least or c.verdict.name != "slower":
            continue
        size = abs(c.effect.value - (1.0 if c.kind == "ratio" else 0.0))
        if size <= max(c.margin, least[c.metric]):
            continue
        place, key = list(least).index(c.metric), (id(c.point), c.label)
        if key not in found or place < found[key][0]:
            found[key] = (place, Loss(comparison=c))
    return {key: loss for key, (_, loss) in found.items()}


def _beside_exact_ones(points: Iterable[Point]) -> Iterator[Comparison]:
    """Yield comparisons with baselines that are exact, of metrics that only what is not exact has."""
    for point in points:
        family = load_family(point.family)
        for name in layout_of(point.family).exact:
            if (point.baseline, name) in point.cells or point.baseline not in point.labels:
                continue
            metric = family.metric(name)
            for label in (label for label, of in point.cells if of == name):
                error = point.estimate(label, name)
                nothing = replace(
                    error, value=0.0, low=0.0, high=0.0, spread=0.0, extremes=None, method="exact"
                )
                # No error is below zero: one whose interval begins above it is worse than none.
                worse = error.value > 0 if error.low is None else error.low > 0
                yield Comparison(
                    point=point,
                    label=label,
                    metric=name,
                    unit=metric.unit,
                    better=metric.better,
                    value=error,
                    baseline_value=nothing,
                    effect=error,
                    kind="difference",
                    margin=metric.margin,
                    q_value=None,
                    verdict=Verdict(name="slower" if worse else "inconclusive"),
                    grade=point.grade(label, name),
                    warnings=(),
                )


def at_risk(comparisons: Iterable[Comparison]) -> set[tuple[int, str]]:
    """Return (``id`` of a point, technique) of those that may lose quality: the interval reaches beyond what counts."""
    found = set()
    for c in comparisons:
        least = layout_of(c.point.family).quality
        if c.metric in least:
            end = c.effect.high if c.better == "lower" else c.effect.low
            worst = (c.effect.value if end is None else end) - (1.0 if c.kind == "ratio" else 0.0)
            if (worst if c.better == "lower" else -worst) > max(c.margin, least[c.metric]):
                found.add((id(c.point), c.label))
    return found


def is_quality(comparison: Comparison) -> bool:
    """Tell whether a comparison is of what results are worth."""
    return comparison.metric in layout_of(comparison.point.family).quality


def qualified(comparison: Comparison, loss: Loss | None, *, wide: bool = False) -> str:
    """Write a verdict; a gain that quality was paid for says so."""
    if loss is None or comparison.verdict.name != "faster" or is_quality(comparison):
        return verdict_text(comparison, wide=wide)
    return f"{gain_word(comparison)}{BUT_WORSE}{loss.text})"


def gain_word(comparison: Comparison) -> str:
    """Say what a gain is: ``faster`` in time or rate, ``cheaper`` in what is spent, else ``better``."""
    if comparison.unit == "s" or comparison.unit.endswith("/s"):
        return "faster"
    return "cheaper" if comparison.better == "lower" else format_verdict("faster", comparison.unit)


def quality_ranks(
    point: Point, metric: str, lost: Mapping[tuple[int, str], Loss]
) -> dict[str, tuple[int, int]]:
    """Return rank intervals at a point: techniques that lose quality behind those that keep it."""
    if metric in layout_of(point.family).quality:
        return ranks(point, metric)
    return ranks(point, metric, behind=frozenset(name for at, name in lost if at == id(point)))
