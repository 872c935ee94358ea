"""Where variance is: nested levels of replication, what each costs, and the numbers that give the narrowest interval.

A launch holds instances, an instance holds stretches of consecutive rounds. With a launches, b instances in each and
s stretches in each instance, y = mean + launch + instance + stretch, all independent, with variances T_L, T_I, T_S.
Balanced nested analysis of variance: let S_S be the mean variance of stretches within instances, S_I the mean variance
of instance means within launches, S_L the variance of launch means. Their expectations are

    E S_S = T_S,    E S_I = T_I + T_S / s,    E S_L = T_L + T_I / b + T_S / (b s),

hence T_I = S_I − S_S / s and T_L = S_L − S_I / b, which may come out negative: that level then shows no variance.
A run of a launches costs a (c_L + b (c_I + n c_R)), where n rounds make n / r stretches of r rounds, and its mean has
variance (T_L + T_I / b + r T_S / (b n)) / a. Whichever numbers make cost times variance least make the interval
narrowest for its cost; setting the derivatives to zero gives, for each level, the root of (cost of the level above /
own cost) × (own variance / variance of the level above).

Source: Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013 (there for any
number of levels). Stretches of rounds instead of single rounds: batch means, since rounds that follow each other are
alike (Law, Simulation Modeling and Analysis).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEAST_LAUNCHES = 5
"""Below, a number is exploratory (``docs/protocol.md``)."""
MOST_LAUNCHES = 200
MOST_INSTANCES = 16
LEAST_ROUNDS = 10
MOST_ROUNDS = 2000
WHOLE = 1e-6
"""What a number may miss of a whole one because costs are not represented exactly."""
DRAWS = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Variance that each level adds; of logarithms where they are logarithms of times or of ratios."""

    launch: float
    instance: float
    round: float
    """Of one round: that of a stretch times its rounds, as if rounds were independent."""

    @property
    def clipped(self) -> Components:
        """The same without negative ones, which say that a level shows no variance."""
        return Components(
            launch=max(self.launch, 0.0), instance=max(self.instance, 0.0), round=max(self.round, 0.0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of each level beyond those of the levels that it holds."""

    launch: float
    """Start, gate and end of a process group."""
    instance: float
    """Making everything anew, warm-up, passes over what was timed."""
    round: float
    """One call of every technique, with preparation and verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How many launches, instances in each, and rounds in each instance."""

    launches: int
    instances: int
    rounds: int


def components(values: np.ndarray, rounds_in_stretch: int) -> Components:
    """Return the variance components of a balanced nested layout.

    Args:
        values: (launches, instances, stretches), at least two of each.
        rounds_in_stretch: Rounds behind each value.

    Raises:
        ValueError: Fewer than two of a level, or numbers that are not finite.
    """
    if values.ndim != 3 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise ValueError("two launches of two instances of two stretches are the least, all finite")
    _, num_instances, num_stretches = values.shape
    stretch = float(values.var(axis=2, ddof=1).mean())
    of_instances = values.mean(axis=2)
    instance = float(of_instances.var(axis=1, ddof=1).mean())
    launch = float(of_instances.mean(axis=1).var(ddof=1))
    return Components(
        launch=launch - instance / num_instances,
        instance=instance - stretch / num_stretches,
        round=stretch * rounds_in_stretch,
    )


def resampled(values: np.ndarray, rounds_in_stretch: int, *, draws: int = DRAWS) -> list[Components]:
    """Return the components of layouts whose launches were drawn with replacement, by a fixed seed.

    A drawn layout whose launches are all the same one says nothing and is drawn again.
    """
    generator = np.random.default_rng(20130620)
    count = len(values)
    found: list[Components] = []
    while len(found) < draws:
        chosen = generator.integers(0, count, size=count)
        if len(set(chosen.tolist())) > 1:
            found.append(components(values[chosen], rounds_in_stretch))
    return found


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the percentile interval of resampled figures."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(values, dtype=np.float64), [tail, 1 - tail])
    return float(low), float(high)


def cost_s(numbers: Numbers, costs: Costs) -> float:
    """Return the seconds of a run."""
    instance = costs.instance + numbers.rounds * costs.round
    return numbers.launches * (costs.launch + numbers.instances * instance)


def half_width(numbers: Numbers, found: Components, confidence: float = CONFIDENCE) -> float:
    """Return half the expected width of Student's interval of the mean over launches, about.

    Args:
        numbers: At least two launches.
        found: Negative components count as none.
        confidence: Of the interval.
    """
    parts = found.clipped
    variance = parts.launch + (parts.instance + parts.round / numbers.rounds) / numbers.instances
    quantile = float(stdtrit(numbers.launches - 1, (1 + confidence) / 2))
    return quantile * math.sqrt(variance / numbers.launches)


def ideal(found: Components, costs: Costs) -> tuple[float, float]:
    """Return the ideal numbers of instances in a launch and of rounds in an instance, by the closed form.

    They are real numbers, and infinite where the level above adds no variance: more of it is then as good as a launch.
    An instance level without variance is left out: one instance, whose rounds stand right below the launch.
    """
    parts = found.clipped
    if parts.instance == 0:
        return 1.0, _root((costs.launch + costs.instance) / costs.round, parts.round, parts.launch)
    instances = _root(costs.launch / costs.instance, parts.instance, parts.launch)
    return instances, _root(costs.instance / costs.round, parts.round, parts.instance)


def _root(cost: float, own: float, above: float) -> float:
    if own == 0:
        return 1.0
    return math.sqrt(cost * own / above) if above > 0 else math.inf


def best(found: Components, costs: Costs, within_s: float) -> Numbers | None:
    """Return the numbers that give the narrowest interval within a time; None if not even the least fit.

    All numbers are tried: for launches and instances each, the most rounds that fit, for more rounds never widen an
    interval. So it heeds what the closed form does not: whole numbers, the time, and that few launches have a wide
    Student's t. Of equally good numbers those with fewer instances and more launches are taken.
    """
    ranked = ((half_width(n, found), n.instances, -n.launches, n) for n in _within(costs, within_s))
    chosen = min(ranked, key=lambda item: item[:3], default=None)
    return chosen[3] if chosen else None


def _within(costs: Costs, within_s: float) -> Iterator[Numbers]:
    for launches in range(LEAST_LAUNCHES, MOST_LAUNCHES + 1):
        for instances in range(1, MOST_INSTANCES + 1):
            left = ((within_s / launches - costs.launch) / instances - costs.instance) / costs.round
            rounds = min(int(left + WHOLE), MOST_ROUNDS)
            if rounds < LEAST_ROUNDS:
                break
            yield Numbers(launches=launches, instances=instances, rounds=rounds)
