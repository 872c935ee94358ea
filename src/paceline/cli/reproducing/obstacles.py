"""What stands in the way of measuring a record again, said before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from paceline.analysis.runs import classes_differ
from paceline.base.errors import PrerequisiteError, UserError
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import load_family
from paceline.drivers.machine.hostclass import HERE, class_here
from paceline.drivers.machine.worktree import require
from paceline.records.format.record import Measurement, Run
from paceline.spec import content
from paceline.worker.network.links import Link, supported

FORCE = "--force measures here all the same, and marks the result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is known before a record is measured again."""

    obstacles: tuple[str, ...] = ()
    """Why it cannot be: nothing could be measured, or nothing compared."""
    foreign: str | None = None
    """Why results of this machine must not be compared with the record's, though they could be measured."""
    remarks: tuple[str, ...] = ()
    """What the comparison can show, and what it cannot."""

    def refusal(self, *, force: bool) -> tuple[str, ...]:
        """Return why nothing is measured; nothing where it can be, or is forced."""
        if self.foreign is None or force:
            return self.obstacles
        fix = f"measure on a machine of the record's class; {FORCE}"
        return (*self.obstacles, f"{self.foreign}\n  fix: {fix}")


def look_ahead(run: Run, measurements: Sequence[Measurement], *, elsewhere: bool) -> Prospect:
    """Compare what a record needs with what is here, in a second and without measuring.

    Args:
        run: Of the record.
        measurements: What is to be measured again.
        elsewhere: Whether the record's own code is checked out for it.
    """
    obstacles: list[str] = []
    foreign: str | None = None
    remarks: list[str] = []
    try:
        if elsewhere and run.code.get("commit"):
            require(content.checkout_root(), run.code)
    except PrerequisiteError as error:
        obstacles.append(str(error))
    if not elsewhere:
        obstacles += _runner_gone(run)
        obstacles_of_contracts, changed = _contracts(measurements)
        obstacles += obstacles_of_contracts
        remarks += changed
    try:
        here = class_here(run.runner)
    except UserError as error:
        obstacles.append(str(error))
    else:
        foreign = None if here is None else classes_differ(here, run.host_class)
        remarks.append(_scope(run, here, foreign))
    if run.runner.get("driver") in HERE:
        obstacles += _links_missing(run, measurements)
        remarks += _packages(run)
    return Prospect(obstacles=tuple(obstacles), foreign=foreign, remarks=tuple(remarks))


def _runner_gone(run: Run) -> list[str]:
    try:
        content.find_runner(str(run.runner.get("name")))
    except UserError as error:
        return [str(error)]
    return []


def _links_missing(run: Run, measurements: Sequence[Measurement]) -> list[str]:
    """Return why this machine cannot emulate a link that the record used."""
    if run.runner.get("network") != "namespaces":
        return []
    runner: Mapping[str, Any] = dict(run.runner)
    offered = runner.get("links") or {}
    names = {str(m.params.get("link") or runner.get("default_link")) for m in measurements}
    used = [link for name, link in offered.items() if name in names and link]
    rates = [rate for link in used if (rate := link.get("rate_bytes_per_s"))]
    delays = [delay for link in used if (delay := link.get("delay_s"))]
    if not rates and not delays:
        return []
    # One trial of all that is needed: each takes a second on a busy machine.
    needed = Link(name="needed", rate_bytes_per_s=max(rates, default=None), delay_s=max(delays, default=0.0))
    reason = supported(needed)
    return [reason] if reason else []


def _contracts(measurements: Sequence[Measurement]) -> tuple[list[str], list[str]]:
    """Return an obstacle where no metric of the record is defined as it was, and a remark for each that is not."""
    recorded = {(m.family, m.metric.name): m.metric.contract_id for m in measurements if m.status == "ok"}
    changed = []
    for (family, name), contract in sorted(recorded.items()):
        try:
            same = contract_id(family, load_family(family).metric(name)) == contract
        except UserError:
            same = False
        if not same:
            changed.append(
                f"{family}/{name} is defined otherwise here than in the record: it is not compared"
            )
    if changed and len(changed) == len(recorded):
        why = "every metric of the record is defined otherwise here: nothing could be compared"
        return [f"{why}\n  fix: --code record measures with the record's own code"], []
    return [], changed


def _scope(run: Run, here: str | None, foreign: str | None) -> str:
    """Say what the comparison can show."""
    if here is None:
        return (
            f"the host class is known once the runner {run.runner.get('name')} has started; results of another class "
            f"than the record's '{run.host_class}' are not compared"
        )
    if foreign is not None:
        return f"{foreign}: neither times nor ratios of the two say anything about each other"
    return (
        f"same host class as the record ('{here}'): ratios to the baseline of the same run are compared, and times "
        "only where a point has nothing but its baseline"
    )


def _packages(run: Run) -> list[str]:
    """Say where torch is another one: a difference may come from it."""
    frozen = dict(p.partition("==")[::2] for p in (run.packages or {}).get("freeze") or ())
    then = frozen.get("torch")
    try:
        now = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return []
    if then is None or then == now:
        return []
    return [f"torch {now} here, {then} in the record: a difference may come from it"]
