"""What ``import paceline`` offers: run, load, compare and show_claims, for scripts and notebooks.

The commands of the same names call the same functions below this one. Errors are exceptions
(``paceline.base.errors``) with the texts of the command line, in which options are named as arguments
(``argument_names``); warnings are Python's. Nothing here prints or ends the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.analysis.failures import grouped
from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INCORRECT, EXIT_OK, IncorrectError, InfrastructureError, UserError
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.folder import load as load_records
from paceline.records.store.lookup import find_run
from paceline.records.store.storage import resume_command
from paceline.spec.suites.grammar import TierName
from paceline.spec.suites.launches import asked_launches
from paceline.workflows.argument_names import in_python, speaks_python
from paceline.workflows.choosing import metrics_today
from paceline.workflows.claiming import claim_facts, current_ledger
from paceline.workflows.comparing import (
    compare_one,
    compare_two,
    comparison_facts,
    run_comparison_facts,
)
from paceline.workflows.dataframes import (
    CLAIM_COLUMNS,
    COMPARISON_COLUMNS,
    RUN_COMPARISON_COLUMNS,
    fact_table,
    measurement_table,
)
from paceline.workflows.running import earlier_runs, exit_code, perform, prepare
from paceline.workflows.stores import LATEST, default_results, stores_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that was measured, and its record."""

    id: str
    """Its id, which sorts by time."""
    path: Path
    """The sealed record."""
    statuses: Mapping[str, int]
    """Results by status: ``ok``, ``incorrect``, ``timeout``, …"""
    failures: tuple[str, ...]
    """Each reason for which results have no number, once."""
    measuring_s: float
    """Seconds that measuring took."""
    exit_code: int
    """What ``paceline run`` would have ended with: 0, 5 (a technique gave a wrong result) or 3 (one broke)."""

    @speaks_python
    def check(self) -> Run:
        """Return this run if every result has a number.

        Raises:
            IncorrectError: A technique gave a wrong result.
            InfrastructureError: One crashed, timed out, or has no result.
        """
        if self.exit_code == EXIT_OK:
            return self
        text = "\n".join([f"run {self.id}:", *self.failures])
        raise IncorrectError(text) if self.exit_code == EXIT_INCORRECT else InfrastructureError(text)

    def load(self, *, samples: bool = False) -> pd.DataFrame:
        """Return its measurements, as ``paceline.load`` does."""
        return load(self, samples=samples)

    def compare(
        self,
        *,
        baseline: str | None = None,
        technique: str | None = None,
        metrics: Sequence[str] = (),
        margin: float | None = None,
    ) -> pd.DataFrame:
        """Return its comparisons, as ``paceline.compare`` does."""
        return compare(self, baseline=baseline, technique=technique, metrics=metrics, margin=margin)


RunLike = Run | str | Path | None
"""A run by its handle, its id (or the beginning of it), ``latest``, or its record's path; None is ``latest``."""


@speaks_python
def run(
    suite: str | Path | Sequence[str | Path],
    *,
    runner: str | Path = "local-cpu",
    tier: TierName = "standard",
    techniques: Sequence[str] = (),
    files: Sequence[str | Path] = (),
    filters: Mapping[str, object] | None = None,
    launches: int | str | None = None,
    budget: float | str | None = None,
    seed: int | None = None,
    one_by_one: bool = False,
    results: str | Path | None = None,
    wait_s: float = 600.0,
    allow_concurrent: bool = False,
    progress: bool = False,
) -> Run:
    """Measure suites and record the result; the same as ``paceline run``.

    Args:
        suite: A file, a name (``collectives/all-reduce``) or a family (``collectives``), or several of these.
        runner: Name or file of the runner profile: where it is measured.
        tier: How much of each suite: ``quick``, ``standard`` or ``full``.
        techniques: Only these, and the baseline; empty means all.
        files: Python files with techniques of your own; each joins the suites that it fits.
        filters: By parameter the value, or values, of the points to keep: ``{"ranks": 2, "dtype": ["float32"]}``.
        launches: Launches of every block, or a range such as ``"5..60"``: as many as its comparisons need to be
            decided. None means the suites' own. One launch gives no interval.
        budget: Seconds, or a text such as ``"5min"``: measure until decided, and start no launch after this time.
        seed: All inputs and orders follow from it, and numbers are of grade C at best; None means new draws.
        one_by_one: Measure each suite to its end before the next begins, in the order given; not with a budget.
        results: The store; None means ``$PACELINE_RESULTS`` or ``results/local``.
        wait_s: Seconds to wait while another run measures on this machine.
        allow_concurrent: Measure although another run does; the record says so.
        progress: Draw a progress bar on standard error.

    Returns:
        The run, also where techniques failed: ``Run.check`` raises then.

    Raises:
        UserError: A mistake in what was asked for; nothing was measured.
        InfrastructureError: The machine is taken, the launcher failed, the disk is full, or Ctrl-C ended it; what
            was measured is kept, and the text says how to go on.
    """
    names = [str(s) for s in ([suite] if isinstance(suite, str | Path) else suite)]
    try:
        asked, budget_s = asked_launches(launches, budget)
    except ValueError as error:
        raise UserError(str(error), where="launches, budget") from None
    prepared = prepare(
        names,
        tier=tier,
        runner=str(runner),
        techniques=techniques,
        user_files=[Path(f) for f in files],
        filters=_pairs(filters or {}),
        launches=asked,
        budget_s=budget_s,
        seed=seed,
        one_by_one=one_by_one,
        say=_say,
    )
    store = _folder(results) or default_results()
    outcome = perform(
        prepared,
        store,
        say=_say,
        earlier=earlier_runs(_folder(results)) if progress else (),
        quiet=not progress,
        wait_s=wait_s,
        allow_concurrent=allow_concurrent,
        argv=[f"paceline.run({', '.join(map(repr, names))}, runner={str(runner)!r}, tier={tier!r}, …)"],
    )
    if outcome.path is None:
        raise InfrastructureError(
            f"interrupted; {number_of(outcome.num_missing, 'result is', 'results are')} missing, the rest is kept\n"
            f"  fix: {resume_command(outcome.run_id, store)}"
        )
    return Run(
        id=outcome.run_id,
        path=outcome.path,
        statuses=dict(outcome.statuses),
        failures=tuple(f.text() for f in grouped(read_record(outcome.path).measurements)),
        measuring_s=outcome.measuring_s,
        exit_code=exit_code(outcome),
    )


@speaks_python
def load(run: RunLike = None, *, results: str | Path | None = None, samples: bool = False) -> pd.DataFrame:
    """Return measurements as a tidy table: one row for each point, technique, metric and launch.

    Columns: the run (``run_id``, ``started``, ``host_class``, ``runner``, ``suite``, ``family``), each parameter of
    the points under its own name and in base units (bytes, seconds), the technique (``label`` is its name in the suite
    and in tables, ``technique`` that of its source), ``role`` (``baseline`` or ``technique``), ``launch``, ``metric``,
    ``unit``, ``value`` (the launch's statistic, in ``unit``), ``num_samples``, ``status``,
    ``reason``, and identities. A row whose ``status`` is not ``ok`` has no value. ``attrs["units"]`` has the unit of
    each metric.

    Args:
        run: One run, as ``compare`` takes it; a folder is a store, of which all runs that stand are read.
        results: The store; None means the one in use and the published runs beside it.
        samples: Add the column ``samples``: the raw samples of the launch, in ``unit``.

    Raises:
        UserError: No such run or store, or a record that cannot be read.
    """
    if isinstance(run, str | Path) and Path(run).is_dir():
        return measurement_table(_all_of(Path(run)), samples=samples)
    return measurement_table([_record(run, results)], samples=samples)


@speaks_python
def compare(
    run: RunLike = None,
    other: RunLike = None,
    *,
    baseline: str | None = None,
    technique: str | None = None,
    metrics: Sequence[str] = (),
    margin: float | None = None,
    force: bool = False,
    results: str | Path | None = None,
) -> pd.DataFrame:
    """Compare techniques of a run with their baselines, or two runs; the same as ``paceline compare``.

    One row for each point, technique and metric: ``effect`` with its interval ``low`` to ``high`` is a ratio or a
    difference, as ``kind`` says; ``verdict`` is decided by the interval, the margin and the direction that is better;
    ``launches`` is how many launches the interval rests on. ``technique`` is the name in the suite, which ``load``
    calls ``label``.

    Args:
        run: The run; None means the newest.
        other: Another run: its series are compared with those of ``run``, which were not interleaved with them.
        baseline: A technique of the run that the others are compared with; None means the suites' own baselines.
        technique: The only technique that is compared; None means all.
        metrics: Metrics to compare; empty means those that the suites name.
        margin: Equivalence margin for every metric; None means each metric's own.
        force: Compare runs that should not be compared.
        results: The store; None means the one in use and the published runs beside it.

    Raises:
        UserError: No such run, technique or metric.
        IncomparableError: The two runs differ in host class, contract, dtype, scale or image class.
    """
    names = metrics_today([metrics] if isinstance(metrics, str) else metrics, say=_say)
    record = _record(run, results)
    if other is not None:
        if baseline is not None or technique is not None:
            raise UserError("two runs are compared series by series", expected="no baseline and no technique")
        series, reason = compare_two(
            record, _record(other, results), metrics=names, margin=margin, force=force, say=_say
        )
        if reason is not None:
            _say(f"forced, not comparable: {reason}")
        return fact_table([run_comparison_facts(c) for c in series], RUN_COMPARISON_COLUMNS)
    _, found = compare_one(
        record, baseline=baseline, technique=technique, metrics=names, margin=margin, say=_say
    )
    return fact_table([comparison_facts(c) for c in found], COMPARISON_COLUMNS)


@speaks_python
def show_claims(
    *, family: str | None = None, verdict: str | None = None, results: str | Path | None = None
) -> pd.DataFrame:
    """Return the declared claims of papers and the suites' own bounds with their verdicts, one a row.

    ``paper`` is missing for a suite's own bound. A claim that was not measured has the verdict ``not run`` and its
    ``reason``. ``value`` with ``low`` and ``high`` is what was found at the worst point.

    Args:
        family: Only claims of this family's suites.
        verdict: Only claims of this verdict.
        results: The store; None means the one in use and the published runs beside it.

    Raises:
        UserError: No such store, family or verdict.
    """
    _, _, kept = current_ledger(_folder(results), family=family, verdict=verdict, say=_say)
    return fact_table([claim_facts(c) for c in kept], CLAIM_COLUMNS)


def _record(run: RunLike, results: str | Path | None) -> RunRecord:
    if isinstance(run, Run):
        return read_record(run.path)
    if run is not None and Path(run).is_file():
        return read_record(Path(run))
    name = LATEST if run is None else str(run)
    return find_run(stores_of(_folder(results), name), name)


def _all_of(store: Path) -> list[RunRecord]:
    """Read all runs of a store that stand and measured something; what cannot be read is a warning."""
    loaded = load_records([store])
    for problem in loaded.problems:
        _say(f"{problem.path}: {problem.what}")
    return [r for r in loaded.records if r.run.reason != "correction"]


def _folder(results: str | Path | None) -> Path | None:
    return None if results is None else Path(results)


def _pairs(filters: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return filters as keys and texts, as suites and the command line write them."""
    pairs = []
    for key, given in filters.items():
        values = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        pairs += [(key, str(value)) for value in values]
    return pairs


def _say(text: str) -> None:
    warnings.warn(in_python(text, run, load, compare, show_claims), stacklevel=3)
