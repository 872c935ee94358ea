"""How a family's results lie on pages: which curves, trade-offs, splits and sweeps its boards and points draw.

A family with anything to draw has a module of its name in ``report.layouts``, with one ``LAYOUT``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec

from paceline.base.families.family import load_family


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSpec:
    """A curve over one launch that a family stores in ``accounting.curve`` and a point's page draws."""

    quantity: str
    """Key of the values, all positive where they are drawn."""
    unit: str
    over: tuple[tuple[str, str], ...]
    """Keys and units of what it is drawn against, one chart for each."""
    cumulative: bool = False
    """Values are quantiles at shares: drawn as a distribution function, shares up and values across."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierSpec:
    """Two metrics whose trade-off a point's page draws.

    ``across`` is better when lower; where ``up`` is better when higher, its axis is linear and the best stand above.
    """

    across: str
    up: str
    unless: str = ""
    """A metric that says the same and more: at a point that has it, this trade-off is left out."""
    beneath: str | None = None
    """Key of ``accounting`` with a list for each of the two metrics: a curve that is known whole, drawn beneath."""
    beneath_name: str = ""
    """What the curve is, for tables."""
    apart: str = ""
    """A metric for whose absence ``apart_reason`` is given where a technique's cost is none of the curve's kind."""
    apart_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSpec:
    """Metrics of one unit that add up, about, to a whole; a point's page draws them as parts of a bar."""

    title: str
    parts: tuple[str, ...]
    whole: str | None = None
    """The metric of the whole, where it is measured by other calls than the parts; a page says where they exceed it."""
    apart: str = ""
    """Why they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSpec:
    """Parameters by which a visitor chooses among a family's techniques: a table for each suite that varies them."""

    columns: str
    """Its values stand side by side."""
    rows: tuple[str, ...]
    """A row for each combination that was measured; what does not vary is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the pages of a family draw beside what all families have."""

    curves: tuple[CurveSpec, ...] = ()
    swept: tuple[str, ...] = ()
    """Metrics that a board draws over its sweep beside the primary one."""
    scaled: tuple[str, ...] = ()
    """Metrics of time for a work that is the same whole however many ranks share it: a board shows their speed-up."""
    frontiers: tuple[FrontierSpec, ...] = ()
    loads: tuple[tuple[str, str], ...] = ()
    """Pairs of metrics, across and up, which a board joins over its sweep: what a server gives, and how slow it is."""
    counts_calls: bool = False
    """Whether a record's accounting says what became of calls, and of the file that they are from."""
    splits: tuple[SplitSpec, ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    """Metrics that say what a result is worth, the most telling first, and the least loss of each that counts: a gain
    in another metric is called worse where one of them is lost by more than this and than the suite's margin."""
    exact: tuple[str, ...] = ()
    """Those of ``quality`` that only techniques have whose results are not exact: others' are zero."""
    choice: ChoiceSpec | None = None
    """By what one chooses; None where boards say it well enough."""
    question: str = ""
    """What one would come to the family for, as a visitor asks it."""
    answers: tuple[str, ...] = ()
    """Metrics with a sample for each question, the same questions in the same order in all techniques of a launch: a
    point's page compares them question by question. 0 or 1 in the first."""


def layout_of(family: str) -> Layout:
    """Return a family's layout.

    Raises:
        UserError: There is no such family.
    """
    return _layout(load_family(family).name)


@cache
def _layout(family: str) -> Layout:
    name = f"paceline.report.layouts.{family}"
    layout = Layout() if find_spec(name) is None else importlib.import_module(name).LAYOUT
    assert isinstance(layout, Layout)
    return layout
