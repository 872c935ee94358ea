"""One technique at one point, once, as a program: its figures are a line of JSON, and nothing is recorded.

So a reference implementation stands beside a program of the user's as another program does (``paceline time``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.analysis.points import Point, points_of
from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import load_family
from paceline.drivers.machine.devices import on_this_machine
from paceline.records.format.record import Measurement
from paceline.records.store.folder import read_record
from paceline.spec import content
from paceline.spec.files.earlier_names import techniques_today
from paceline.spec.plans.plan import CaseKey, Selection, canonical, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.grammar import TierName
from paceline.spec.suites.launches import Launches
from paceline.workflows.choosing import Say
from paceline.workflows.running import Prepared, exit_code, perform, prepare

ONE_LAUNCH = Launches(first=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """What a technique gave."""

    figures: Mapping[str, float]
    """Metrics, and what is computed from them, by name, each in its unit."""
    failures: Sequence[Measurement]
    """Why there are none."""
    exit_code: int


def prepare_one(
    suite: str,
    label: str,
    *,
    tier: TierName,
    runner: str,
    filters: Sequence[tuple[str, str]],
    user_files: Sequence[Path],
    seed: int | None,
    say: Say,
) -> Prepared:
    """Plan one technique, without the suite's baseline, at the one point that is left.

    Args:
        suite: A file or a name.
        label: The technique, as the suite calls it.
        tier: How much of the suite.
        runner: Name or file of the runner profile.
        filters: Keys and values of the point.
        user_files: Python files with techniques of the user's own.
        seed: All inputs follow from it; None means new draws.
        say: Told every warning.

    Raises:
        UserError: The technique or the point is not in the plan, or more than one point is.
    """
    asked: dict[str, Any] = {"tier": tier, "filters": filters, "launches": ONE_LAUNCH, "seed": seed}
    whole = prepare([suite], runner=runner, techniques=[label], user_files=user_files, say=say, **asked)
    (label,) = techniques_today([label], {s.family.name for s in whole.suites})
    blocks = [b for b in whole.plan.blocks if any(c["label"] == label for c in b["cases"])]
    if not blocks:
        labels = sorted({c["label"] for b in whole.plan.blocks for c in b["cases"]})
        raise UserError(
            f"nothing is planned of '{label}'",
            where=suite,
            expected=expected_one_of(label, labels),
            fix=f"paceline plan {suite} says what runs at which point, and why the rest does not",
        )
    if len(blocks) > 1:
        raise UserError(
            f"'{label}' runs at {number_of(len(blocks), 'point')}: {_apart(blocks)}",
            where=suite,
            expected="one point",
            fix="name it by --filter=KEY=VALUE, once for each key",
        )
    (block,) = blocks
    only: CaseKey = (block["suite"], canonical(block["params"]), label)
    selection = Selection(only=frozenset({only}), **{**asked, "filters": ()})
    profile = on_this_machine(load_runner(content.find_runner(runner)))
    return Prepared(plan=make_plan(whole.suites, profile, selection), suites=whole.suites)


def _apart(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return what tells points apart: each parameter of which they have several values, with these."""
    names = sorted({name for b in blocks for name in b["params"]})
    values = {name: list(dict.fromkeys(str(b["params"].get(name)) for b in blocks)) for name in names}
    return "; ".join(f"{name} {', '.join(found)}" for name, found in values.items() if len(found) > 1)


def perform_one(prepared: Prepared, *, say: Say) -> Once:
    """Measure what ``prepare_one`` has planned; the record goes with its folder.

    It does not wait for other runs: one of them may have started it.

    Raises:
        InfrastructureError: The launcher failed, or the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-once-") as store:
        outcome = perform(prepared, Path(store), say=say, allow_concurrent=True)
        record = read_record(outcome.path) if outcome.path is not None else None
    points = points_of(record) if record is not None else []
    return Once(
        figures={name: value for point in points for name, value in figures_of(point).items()},
        failures=[m for point in points for failed in point.failures.values() for m in failed],
        exit_code=exit_code(outcome),
    )


def figures_of(point: Point) -> dict[str, float]:
    """Return the metrics of a point's one technique, and what is computed from them, by name, each in its unit."""
    (label,) = point.labels or (None,)
    measured = {name: point.estimate(of, name).value for of, name in point.cells if of == label}
    found = dict(measured)
    for derived in load_family(point.family).derived:
        sources = [s for s in (derived.source, derived.second_source) if s is not None]
        if all(source in measured for source in sources):
            value = derived.of(point.params, *(measured[source] for source in sources))
            if value is not None:
                found[derived.name] = value
    return found
