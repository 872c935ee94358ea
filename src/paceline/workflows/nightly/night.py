"""One night: measure what is due, judge it, measure suspects again, and say what was found."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from paceline.analysis.gate import set_baseline, waivers
from paceline.analysis.lateness import late_runs
from paceline.base.counting import number_of
from paceline.base.errors import (
    IncomparableError,
    InfrastructureError,
    UserError,
)
from paceline.base.families.family import load_family
from paceline.drivers.machine import quarantine
from paceline.drivers.machine.devices import on_this_machine
from paceline.drivers.machine.occupation import Occupation, look_around, measures_here, occupied
from paceline.drivers.measure import measure
from paceline.records.earlier_runs import RunTimes, read_times
from paceline.records.format.record import Event, Measurement, Run
from paceline.records.identity import utc
from paceline.records.origin.ancestry import IsAncestor, unknown
from paceline.records.store.folder import Loaded, RunRecord, read_record
from paceline.records.store.integrity import append_event
from paceline.spec.plans.plan import CaseKey, Plan, Selection, canonical, make_plan, part_of
from paceline.workflows.nightly.agenda import (
    NOTHING_RUNS,
    Agenda,
    Key,
    Planned,
    due_parts,
    foresee,
    left_to_later,
    plan_units,
)
from paceline.workflows.nightly.alarms import (
    Suspect,
    confirmed,
    infrastructure_failures,
    nights_before,
    points_to_repeat,
    suspects,
)
from paceline.workflows.nightly.attempts import note_attempt, read_attempts
from paceline.workflows.nightly.config import Nightly, Unit
from paceline.workflows.nightly.outcomes import INTERRUPTED, NightReport, UnitReport, summary
from paceline.workflows.nightly.schedule import Due, Place, Share, tonight
from paceline.workflows.nightly.tally import Pair, tally

Say = Callable[[str], None]
ALARM = "alarm"
"""Key of an annotation that marks a night as worse than its reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a night works with."""

    nightly: Nightly
    store: Path
    load: Callable[[], Loaded]
    """Read the store again, with what was recorded meanwhile."""
    say: Say
    state: Path | None = None
    """The host's state folder; None for the usual one."""

    stores: tuple[Path, ...] = ()
    """Whose runs say how long things take; the store that is written to where empty."""
    ancestry: Callable[[Iterable[Run]], IsAncestor] = lambda runs: unknown
    """Finds out what is known of the commits of runs."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], str] = utc

    def run(self) -> NightReport:
        """Measure what is due.

        Raises:
            InfrastructureError: Another run holds this machine.
        """
        report = NightReport(nightly=self.nightly.model.nightly, started=self.now())
        began = self.clock()
        here = [u.runner.resolved() for u in self.nightly.units if measures_here(u.runner.resolved())]
        hold: contextlib.AbstractContextManager[Occupation] = contextlib.nullcontext(Occupation())
        if here:
            hold = occupied(here[0], wait_s=self.nightly.wait_s, inspect=False, say=self.say)
        with hold as place:
            units, skipped = self._planned()
            for name, why in (self._omitted() | skipped).items():
                report.units.append(UnitReport(name=name, outcome="skipped", why=why))
                self.say(f"{name}: skipped: {why}")
            tried: set[Key] = set()
            while (share := self._next(units, tried, self.clock() - began)) and not report.interrupted:
                one = units[share.place]
                note_attempt(self.store, share.place, share.blocks, self.now())
                found = self._unit(one.unit, part_of(one.plan, share.blocks), place)
                found.name = one.name(len(share.blocks))
                tried |= {(share.place, block) for block in share.blocks}
                report.units.append(found)
                self.say(f"{found.name}: {summary(found)}")
                report.interrupted = found.why == INTERRUPTED
            self._report_rest(units, tried, report)
        return report

    def agenda(self) -> tuple[dict[Place, Planned], Agenda]:
        """Say what a night that begins now would do."""
        units, skipped = self._planned()
        left_out = self._omitted() | skipped
        return units, foresee(units, self._due(units, ()), left_out, self.nightly.budget_s)

    def _planned(self) -> tuple[dict[Place, Planned], dict[str, str]]:
        """Plan every unit; return those that can be measured, and the others with the reason.

        Raises:
            UserError: Nothing of any unit runs on its runner.
        """
        units, skipped = plan_units(self.nightly.units, self.state)
        if skipped and not units and all(why.startswith(NOTHING_RUNS) for why in skipped.values()):
            raise UserError(
                "; ".join(f"{name}: {why}" for name, why in skipped.items()),
                where=str(self.nightly.path),
                expected="a suite of which something runs on its runner",
                fix="paceline list runners",
            )
        return units, skipped

    def _omitted(self) -> dict[str, str]:
        """Return suites that leave their tier out, with the reason."""
        return {
            unit.name: f"the suite leaves the tier {unit.tier} out: {unit.omitted}"
            for unit in self.nightly.omitted
        }

    def times(self) -> list[RunTimes]:
        """Return what earlier runs took."""
        return read_times(self.stores or (self.store,))

    def _due(self, units: Mapping[Place, Planned], without: Collection[Key]) -> list[Due]:
        return due_parts(units, self.times(), read_attempts(self.store), self.now(), without=without)

    def _next(self, units: Mapping[Place, Planned], tried: Collection[Key], elapsed_s: float) -> Share | None:
        """Return what is measured next, by what tonight's runs have shown of times and of runners."""
        able = {
            place: one
            for place, one in units.items()
            if quarantine.quarantined(one.unit.runner.name, self.state) is None
        }
        due, budget_s = self._due(able, tried), self.nightly.budget_s
        shares = tonight(due, budget_s=budget_s, elapsed_s=elapsed_s, first=not tried)
        return shares[0] if shares else None

    def _report_rest(
        self, units: Mapping[Place, Planned], tried: Collection[Key], report: NightReport
    ) -> None:
        """Say of what was not tried why, and when its turn comes."""
        wanted = {(place, b["block"]) for place, one in units.items() for b in one.plan.blocks} - set(tried)
        if not wanted:
            return
        for later in left_to_later(units, self._due(units, ()), wanted, self.nightly.budget_s):
            standing = quarantine.quarantined(later.planned.unit.runner.name, self.state)
            why = f"the rest of the budget is too short; {later.text}"
            if standing is not None or report.interrupted:
                why = standing.text() if standing is not None else INTERRUPTED
            name = later.planned.name(later.num_blocks)
            report.units.append(UnitReport(name=name, outcome="skipped", why=why))

    def _unit(self, unit: Unit, plan: Plan, place: Occupation) -> UnitReport:
        """Measure one unit, again when the machine failed, and judge it."""
        failures: list[str] = []
        record = None
        for _ in range(1 + self.nightly.model.retries):
            if quarantine.quarantined(unit.runner.name, self.state) is not None:
                break
            try:
                record = self._measure(unit, plan, place, reason="nightly")
            except InfrastructureError as error:
                failures.append(str(error))
            else:
                if record is None:
                    return UnitReport(name=unit.name, outcome="failed", why=INTERRUPTED)
                broken = infrastructure_failures(record)
                if not broken:
                    quarantine.succeeded(unit.runner.name, self.state)
                    break
                failures += broken
            standing = quarantine.failed(
                unit.runner.name, failures[-1], limit=self.nightly.model.quarantine, folder=self.state
            )
            self.say(standing.text() if standing.quarantined else f"{unit.name}: {failures[-1]}")
        if record is None:
            why = failures[-1] if failures else "the runner is in quarantine"
            return UnitReport(name=unit.name, outcome="failed", why=why, infrastructure=failures)
        report = UnitReport(
            name=unit.name,
            outcome="measured",
            run_id=record.run_id,
            infrastructure=infrastructure_failures(record),
        )
        self._judge(unit, plan, record, report, place)
        return report

    def _measure(
        self,
        unit: Unit,
        plan: Plan,
        place: Occupation,
        *,
        reason: Literal["nightly", "confirm"],
        linked_run: str | None = None,
    ) -> RunRecord | None:
        """Look at the machine and measure; None when a person interrupted it."""
        here = Occupation(lease=place.lease)
        runner = unit.runner.resolved()
        if measures_here(runner):
            demand = self.nightly.model.idle == "demand" or unit.runner.model.idle == "demand"
            here.facts = look_around(runner, demand_idle=demand, wait_s=self.nightly.wait_s, say=self.say)
            here.facts["lease"] = "held"
        outcome = measure(plan, [unit.suite], self.store, reason=reason, linked_run=linked_run, place=here)
        return None if outcome.path is None else read_record(outcome.path)

    def _judge(
        self, unit: Unit, plan: Plan, record: RunRecord, report: UnitReport, place: Occupation
    ) -> None:
        """Compare a night with its reference; measure suspects again; mark the run with what is an alarm."""
        loaded = self.load()
        alarmed = alarmed_runs(loaded)
        is_ancestor = self.ancestry(r.run for r in (*loaded.records, record))
        before = nights_before(loaded, record, is_ancestor)
        report.tally = tally(record, plan)
        if late := late_runs((r.run for r in (*before, record)), is_ancestor).get(record.run_id):
            report.why = f"not compared: {late.why}"
            return
        before = before[: self.nightly.model.alarm.nights]
        steady = [r for r in before if r.run_id not in alarmed and not infrastructure_failures(r)]
        references = self._references(loaded, record, steady)
        if not references:
            report.why = "the first night: nothing to compare with"
            return
        report.reference = ", ".join(reference.run_id for reference, _ in references)
        options: dict[str, Any] = {
            "margin": self.nightly.model.alarm.margin,
            "waivers": waivers(loaded, utc()[:10]),
        }

        def compared(measured: RunRecord, pairs: list[Pair] | None = None) -> list[Suspect]:
            found: list[Suspect] = []
            for reference, blocks in references:
                earlier = [r for r in steady if r.run_id not in (record.run_id, measured.run_id)]
                part = of_blocks(measured, blocks)
                worse, decision = suspects(part, reference, earlier=earlier, **options)
                found += worse
                if pairs is not None:
                    pairs.append((part, reference, decision))
            return found

        pairs: list[Pair] = []
        try:
            found = compared(record, pairs)
        except IncomparableError as error:
            report.why = f"not compared: {error}"
            return
        report.tally = tally(record, plan, pairs)
        if found and self.nightly.model.alarm.confirm:
            report.alarms, report.unconfirmed = self._confirm(unit, record, found, report, place, compared)
        else:
            report.alarms = found
        if report.alarms:
            text = "; ".join(a.text for a in report.alarms)
            data = {
                "run_id": record.run_id,
                "text": f"alarm: {text}",
                ALARM: [a.series for a in report.alarms],
            }
            append_event(self.store, Event(kind="annotate", at=utc(), run_id=record.run_id, data=data))

    def _confirm(
        self,
        unit: Unit,
        record: RunRecord,
        found: Sequence[Suspect],
        report: UnitReport,
        place: Occupation,
        compared: Callable[[RunRecord], list[Suspect]],
    ) -> tuple[list[Suspect], list[Suspect]]:
        """Measure the suspects' points again, against the same reference."""
        repeated = points_to_repeat(record, found)
        self.say(f"{unit.name}: {number_of(len(found), 'suspect is', 'suspects are')} measured again")
        selection = Selection(
            tier=unit.tier,
            launches=unit.launches,
            seed=record.run.fixed_seed,
            only=frozenset(_case(m) for m in repeated),
        )
        try:
            again = self._measure(
                unit,
                make_plan([unit.suite], on_this_machine(unit.runner), selection),
                place,
                reason="confirm",
                linked_run=record.run_id,
            )
        except InfrastructureError as error:
            report.infrastructure.append(f"suspects could not be measured again: {error}")
            return [], list(found)
        if again is None:
            report.why = INTERRUPTED
            return [], list(found)
        report.confirm_run = again.run_id
        report.infrastructure += infrastructure_failures(again)
        return confirmed(found, compared(again))

    def _references(
        self, loaded: Loaded, record: RunRecord, steady: Sequence[RunRecord]
    ) -> list[tuple[RunRecord, set[str]]]:
        """Return what each block is compared with: a run that a person set, else its newest night without an alarm.

        Nights that measured shares of a suite hold different blocks.
        """
        blocks = {m.block for m in record.measurements}
        try:
            return [(set_baseline(loaded, record), blocks)]
        except UserError:
            found: list[tuple[RunRecord, set[str]]] = []
            for night in steady:
                if held := blocks & {m.block for m in night.measurements}:
                    found.append((night, held))
                    blocks -= held
            return found


def _case(m: Measurement) -> CaseKey:
    family = load_family(m.family)
    operation = str(m.params.get(family.operation_key, ""))
    defaults = {p.name: p.default for p in family.parameters_for(operation)}
    return m.suite, canonical({**defaults, **m.params}), m.label


def of_blocks(record: RunRecord, blocks: Collection[str]) -> RunRecord:
    """Return a record with the measurements of some of its blocks."""
    return replace(record, measurements=tuple(m for m in record.measurements if m.block in blocks))


def alarmed_runs(loaded: Loaded) -> set[str]:
    """Return the runs that were marked as worse than their reference."""
    events = (e for r in loaded.records for e in r.events)
    return {str(e.data.get("run_id")) for e in events if e.kind == "annotate" and ALARM in e.data}
