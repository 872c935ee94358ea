"""What a family declares about itself: parameters, metrics with their contracts, and planning rules.

A family is a package ``paceline.families.<name>`` whose ``spec.py`` holds one ``FAMILY`` object. The specification is
free of torch, so that suites are validated, planned and rendered without it; the executing half of the family sits
beside it and is imported only by the worker. A new family plugs in by adding its package: nothing here names one.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.quantities import Quantity
from paceline.base.techniques.technique import Technique
from paceline.base.units import bounded, finite, parse_duration, parse_rate, parse_size

FORMULA_TOLERANCE = 0.01
"""Relative difference between a closed form and what was counted that is let pass."""
TIME_MARGIN = 0.05
"""Margin of times that were measured, unless there is a reason for another: nobody changes a deployment for less, and
launches on a shared host resolve it (``docs/protocol.md``). Simulated times have no noise, and smaller margins."""

ParameterKind = Literal["size", "count", "number", "choice", "flag", "duration", "rate", "text"]
Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]
Bounds = tuple[float, float]
"""The least and the largest value that a quantity can have; infinite where there is no such end."""
ANY: Bounds = (-math.inf, math.inf)
NOT_NEGATIVE: Bounds = (0.0, math.inf)
SHARE: Bounds = (0.0, 1.0)
UNITS_WITHOUT_ZERO_POINT = frozenset({"", "1", "ratio", "nat"})
"""Units that say nothing of a quantity's range; whatever else is counted or timed is never below zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One axis of a workload that a suite may fix, sweep or zip."""

    name: str
    kind: ParameterKind
    doc: str
    default: Scalar = None
    """Value when the suite is silent; None together with ``required`` means that a suite must give one."""
    required: bool = False
    choices: tuple[str, ...] = ()
    only_for: tuple[str, ...] = ()
    """Operations for which the parameter exists; empty means all."""
    minimum: float | None = None
    ours: bool = False
    """A setting that we choose, and that can create what a paper found: a link's rate, say. A claim that quotes its
    paper and selects points by it says so (``assumed``)."""
    form: Callable[[str], str | None] | None = None
    """Says what is wrong with a text, whatever the other parameters are; None where nothing is. Of a choice: with a
    text that is none of them."""
    is_code: Callable[[str], bool] | None = None
    """Tells whether a text names an object in a file of the user's (``own_code``), whose files go with the plan."""

    def parse(self, value: object) -> Scalar:
        """Return the canonical value in base units.

        Raises:
            ValueError: With a message that names what is accepted.
        """
        if value is None and not self.required and self.default is None:
            return None
        parsed = self._parse(value)
        if (
            self.minimum is not None
            and isinstance(parsed, int | float)
            and not isinstance(parsed, bool)
            and parsed < self.minimum
        ):
            raise ValueError(f"{value} is below the least accepted value, {self.minimum:g}")
        return parsed

    def _parse(self, value: object) -> Scalar:
        match self.kind:
            case "size":
                if isinstance(value, int | str):
                    return parse_size(value)
            case "count":
                if isinstance(value, int) and not isinstance(value, bool):
                    return bounded(value)
            case "number":
                if isinstance(value, int | float) and not isinstance(value, bool):
                    return finite(value)
            case "choice":
                if value in self.choices:
                    return str(value)
                if self.form is not None and isinstance(value, str):
                    if (wrong := self.form(value)) is None:
                        return value
                    raise ValueError(wrong)
                raise ValueError(f"'{value}' is not a legal {self.name}")
            case "flag":
                if isinstance(value, bool):
                    return value
            case "duration":
                if isinstance(value, int | float | str):
                    return parse_duration(value)
            case "rate":
                if isinstance(value, str):
                    return parse_rate(value)
            case "text":
                if isinstance(value, str):
                    wrong = None if self.form is None else self.form(value)
                    if wrong is not None:
                        raise ValueError(wrong)
                    return value
        raise ValueError(f"'{value}' is not a {self.kind}")


def bounds_of_unit(unit: str) -> Bounds:
    """Return between what a quantity lies of which nothing but its unit is known."""
    return ANY if unit in UNITS_WITHOUT_ZERO_POINT else NOT_NEGATIVE


MOST_HEADLINE = 8
"""Metrics of a suite that tables show first, at most: who reads more sees none."""
MISSED = "missed: "
"""How the reason begins for which a launch has no value of a metric that was looked for to the end: it is infinite."""
MISSED_EARLIER = "the distance never came down to "
"""How it begins in records of known objectives from before they said so; nothing else ever began like this."""


def is_missed(reason: str) -> bool:
    """Tell whether a metric that a launch does not have is infinite there, and not just unknown."""
    return reason.startswith((MISSED, MISSED_EARLIER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measured quantity together with the exact rules by which it is measured.

    The contract's id, ``paceline.base.families.contracts``, is part of every series key: results measured under
    different rules are never compared.
    """

    name: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    doc: str
    contract: Mapping[str, str]
    """Timer, synchronisation, start, stop, exclusions and cross-rank reduction, in words that people check."""
    version: int = 1
    """Of the contract: raised by one whenever it means something else than before, and by no change of its wording."""
    statistic: Literal["median", "mean", "max", "sum", "last"] = "median"
    """How the samples of one launch become one number."""
    compared_by: Literal["ratio", "difference"] = "ratio"
    proportion: bool = False
    """Samples are 0 or 1 and the value is their mean, with a Wilson interval."""
    suspicious_gain: float | None = None
    """A technique that is better than its baseline by more (as it is compared) is probably measured wrongly."""
    bounds: Bounds | None = None
    """Least and largest value where unit and comparison do not tell them; no part of the contract."""
    margin: float = 0.0
    """Largest relative (or absolute, when compared by difference) change that nobody should care about."""
    clock: Literal["machine", "virtual", "none"] | None = None
    """Whose time its values are made of: the machine's, which others' load changes; that of a model, which plays events
    by stated costs; or none. Without a word a unit of time means the machine's. No part of the contract."""

    @property
    def timed(self) -> bool:
        """Whether it measures how fast the machine was."""
        by_unit = self.unit == "s" or self.unit.endswith("/s")
        return by_unit if self.clock is None else self.clock == "machine"

    @property
    def range_of_values(self) -> Bounds:
        """The least and the largest value that the metric can have: what is shown of an interval stays between them."""
        if self.bounds is not None:
            return self.bounds
        if self.proportion:
            return SHARE
        return NOT_NEGATIVE if self.compared_by == "ratio" else bounds_of_unit(self.unit)

    @property
    def scale(self) -> Literal["log", "linear", "proportion"]:
        """On which values over launches are averaged: what is compared by difference adds up, the rest multiplies."""
        if self.proportion:
            return "proportion"
        return "log" if self.compared_by == "ratio" else "linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedMetric:
    """A figure that a report computes from a measured one and the case's parameters; never stored."""

    name: str
    unit: str
    source: str
    """The measured metric that it is computed from."""
    second_source: str | None = None
    """A second one, where the formula holds two; without a number of both there is no figure."""
    formula: str
    """The formula as people write it."""
    compute: Callable[..., float | None]
    """Takes the parameters, and the value of each metric in turn."""

    def of(self, params: Params, *values: float) -> float | None:
        """Return the figure; None where it has no meaning, or the formula has no answer for such parameters.

        Parameters of records are not always the family's own: other versions lack some, and other people write any.
        """
        try:
            return self.compute(params, *values)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one technique gave at one point in one launch."""

    params: Params
    """The point, in base units."""
    samples: Mapping[str, Sequence[float]]
    """By metric the raw samples, in the metric's unit."""
    accounting: Mapping[str, Any]
    """Counts and curves, as the operation wrote them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedMetric:
    """A metric with a formula over what a launch measured: a file of its own in its family's folder ``metrics``.

    It is computed where results become lines of a record, so that the number is kept, compared and claimed like any
    other. It needs no torch, and changes neither cases nor the series of other metrics.
    """

    metric: Metric
    needs: tuple[str, ...]
    """Metrics that the formula reads: without one of them there is no value."""
    compute: Callable[[Observed], Sequence[float]]
    """Returns the samples of a launch, finite, in the metric's unit; none where the launch tells nothing."""
    operations: tuple[str, ...] = ()
    """Operations that have it; empty for all whose results have what it needs."""

    def of(self, observed: Observed, operation: str) -> list[float] | str | None:
        """Return the samples, or why there are none; None where the metric does not belong to such a result."""
        if self.operations and operation not in self.operations:
            return None
        if any(name not in observed.samples for name in self.needs):
            return None
        try:
            found = [float(sample) for sample in self.compute(observed)]
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            return f"its formula failed: {type(error).__name__}: {error}"
        if not found or not all(map(math.isfinite, found)):
            return f"its formula gives {'no sample' if not found else 'no finite number'}"
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Everything that the control plane knows about a family."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]
    default_metrics: tuple[str, ...]
    """Metrics compared when a suite does not name any."""
    operation_key: str
    """The workload key that techniques' ``implements`` refers to."""
    check: Callable[[Params], list[str]]
    """Problems of a fully resolved point, in words; empty when it is a legal case."""
    estimate_s: Callable[[Params], float | None]
    """Rough seconds of one observation on two slow cores, for the plan's time estimate; None where nobody can know."""
    unsupported: Callable[[Params, Technique], str | None] = lambda params, technique: None
    """Why a technique cannot run a point beyond ``Requirements``, or None."""
    completed: Callable[[Params, Collection[str]], Params] = lambda params, given: params
    """A point with what follows from others of its parameters where a suite does not name it; and the names given."""
    operations: Mapping[str, Any] = field(default_factory=dict)
    """By name the ``Operation`` of each; empty for families that measure nothing."""
    derived: tuple[DerivedMetric, ...] = ()
    computed: tuple[ComputedMetric, ...] = ()
    """Of its metrics those that are computed from others when a result is recorded."""
    quantities: tuple[Quantity, ...] = ()
    """What premises of claims may ask of its launches."""
    tuned_metrics: tuple[str, ...] = ()
    """Metrics that other settings of a technique would change: a suite that claims one says how they were chosen."""
    borrows: Mapping[str, str] = field(default_factory=dict)
    """By operation another family whose files that are no code, such as weights, it reads."""
    isolated: bool = False
    """True when techniques run in processes of their own, which the family starts; the ranks never import them."""
    in_ranks: frozenset[str] = frozenset()
    """Operations of such a family whose techniques are the ranks' own after all."""
    preload: tuple[str, ...] = ()
    """Modules of PyTorch that every rank imports sooner or later: the fork server imports them once for all. They may
    compute nothing, start no thread and open no device."""
    internal: bool = False
    """True for families that exist for the harness itself and stay off the leaderboard."""
    named: Callable[[str], Metric | None] = lambda name: None
    """Makes the metric of a name that a suite chose, such as that of a figure which a program reports; else None."""

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises:
            UserError: The family has no such metric.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        if (named := self.named(name)) is not None:
            return named
        raise UserError(
            f"the {self.name} family has no metric '{name}'",
            expected=expected_one_of(name, (m.name for m in self.metrics)),
        )

    def has(self, name: str) -> bool:
        """Tell whether a name is that of a metric."""
        return any(metric.name == name for metric in self.metrics) or self.named(name) is not None

    def measured_by(self, operation: str) -> tuple[Metric, ...]:
        """Return the metrics that an operation measures, without those that are computed from them."""
        found = self.operations.get(operation)
        return found.metrics if found else self.metrics

    def runner_module(self, operation: str) -> str:
        """Return the dotted name of the module that measures an operation's blocks."""
        found = self.operations.get(operation)
        return f"paceline.families.{self.name}.{found.runner_module if found else 'run'}"

    def is_isolated(self, operation: str) -> bool:
        """Tell whether an operation's techniques run in processes of their own, and the ranks never import them."""
        found = self.operations.get(operation)
        return bool(found.isolated) if found else self.isolated and operation not in self.in_ranks

    def needs_torch(self, operation: str) -> bool:
        """Tell whether the ranks of an operation compute with tensors."""
        found = self.operations.get(operation)
        return bool(found.needs_torch) if found else True

    def is_elsewhere(self, operation: str, params: Params) -> bool:
        """Tell whether programs that the harness has not started do the work of a point."""
        found = self.operations.get(operation)
        return bool(found.elsewhere(params)) if found else False

    def lender(self, operation: str) -> str | None:
        """Return another family whose files that are no code, such as weights, an operation reads."""
        found = self.operations.get(operation)
        return found.borrows if found else self.borrows.get(operation)

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter by name, or None."""
        return next((p for p in self.parameters if p.name == name), None)

    def quantity(self, name: str) -> Quantity | None:
        """Return a quantity by name, or None."""
        return next((q for q in self.quantities if q.name == name), None)

    def parameters_for(self, operation: str) -> tuple[Parameter, ...]:
        """Return the parameters that exist for one operation."""
        return tuple(p for p in self.parameters if not p.only_for or operation in p.only_for)


def off_formula(measured: Mapping[str, float], predicted: Mapping[str, float]) -> str | None:
    """Say which figure a technique's closed form does not give within 1 % of it, or None; zero is exactly zero.

    Args:
        measured: Figures by name.
        predicted: What the closed form gives; names that nobody measured are left out.
    """
    for name, expected in predicted.items():
        found = measured.get(name)
        if found is not None and abs(found - expected) > FORMULA_TOLERANCE * abs(expected):
            digits = 1 if abs(expected) >= 10 else 4
            return f"{name} is {found:.{digits}f}, formula {expected:.{digits}f}"
    return None


@cache
def family_names() -> tuple[str, ...]:
    """List every family package that has a specification, in alphabetical order."""
    package = importlib.import_module("paceline.families")  # plug-ins: found on demand, none is named here
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg))


def load_family(name: str) -> Family:
    """Import ``paceline.families.<name>.spec`` and return its ``FAMILY``.

    Raises:
        UserError: There is no such family.
    """
    names = family_names()
    if name not in names:
        raise UserError(f"unknown family '{name}'", expected=expected_one_of(name, names))
    return _family(name)


@cache
def _family(name: str) -> Family:
    """Import a family once: pages ask for it some fifty times a row."""
    family = importlib.import_module(f"paceline.families.{name}.spec").FAMILY
    assert isinstance(family, Family)
    return family
