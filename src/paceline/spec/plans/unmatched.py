"""What a person asked for that a plan does not have: filters, techniques, files and suites that nothing came of.

Each is a ``UserError`` that says what, where and what there would have been. It is a warning where something of what
was asked for is left, and is raised where nothing is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from paceline.base.errors import UserError, UserErrors, nearest
from paceline.base.families.family import Scalar
from paceline.base.units import format_size
from paceline.spec.plans.plan import Plan, Selection
from paceline.spec.plans.points import matches, points_in
from paceline.spec.profiles.profile import RunnerProfile
from paceline.spec.suites.suite import Suite

MAX_SHOWN = 12
NO_POINT = "no point of it is left"
NOTHING_RUNS = "nothing of it runs on"


class NothingRunsError(UserError):
    """A suite has points that were asked for, and none of them can be measured by the runner."""


def unmatched(
    plan: Plan,
    suites: Sequence[Suite],
    runner: RunnerProfile,
    selection: Selection,
    files: Iterable[Path] = (),
) -> list[str]:
    """Return a warning for everything of a selection that the plan does without.

    Args:
        plan: What was planned.
        suites: The suites that were asked for.
        runner: Where they would run.
        selection: What was asked for of them.
        files: Files with techniques of the user's own.

    Raises:
        UserError: Nothing is left of the suites, of the techniques or of a file.
    """
    filtered = _filters(suites, runner, selection)
    gone = _suites(plan, suites, runner, selection)
    missing = _techniques(plan, selection)
    findings = [*filtered, *gone, *missing]
    if not plan.num_cases:
        told = [found for found in gone if not (filtered and found.what == NO_POINT)]
        refuse("nothing is left to run", [*filtered, *told] or missing)
    if missing and not _has(plan, selection.techniques):
        refuse("none of the techniques would run", missing)
    for path in files:
        lost, some = _of_file(plan, suites, path)
        if lost and not some:
            refuse("the technique file adds nothing to the run", lost)
        findings += lost
    return [warning(found) for found in findings]


def refuse(what: str, findings: Sequence[UserError]) -> NoReturn:
    """Raise what was found as errors, below one that says what it comes to where nothing else does."""
    raise UserErrors(findings) if findings else UserError(what)


def warning(found: UserError) -> str:
    """Return an error's text as one line, for what goes on without it."""
    place = f"{found.where}: " if found.where else ""
    expected = f" (there is: {found.expected})" if found.expected else ""
    return f"{place}{found.what}{expected}"


def _filters(suites: Sequence[Suite], runner: RunnerProfile, selection: Selection) -> list[UserError]:
    """Name the values that no point of the suites has, and filters that no point fits together."""
    if not selection.filters:
        return []
    points = [
        (suite, params)
        for suite in suites
        if not ((tier := suite.model.tiers.get(selection.tier)) and tier.omit)
        for params in points_in(suite, tier, runner)
    ]
    found: list[UserError] = []
    for key, text in dict.fromkeys(selection.filters):
        if points and not any(matches(params, suite, [(key, text)]) for suite, params in points):
            values = dict.fromkeys(v for s, p in points if (v := _shown(s, p, key)) is not None)
            found.append(
                UserError(
                    f"no point of the suites has {key} {text}",
                    where=f"--filter={key}={text}",
                    expected=_some(text, list(values)) if values else f"nothing: no point has {key}",
                )
            )
    if points and not found and not any(matches(params, s, selection.filters) for s, params in points):
        given = " ".join(f"--filter={key}={text}" for key, text in selection.filters)
        found.append(UserError("no point fits all filters together", where=given, fix="leave one out"))
    return found


def _shown(suite: Suite, params: Mapping[str, Scalar], key: str) -> str | None:
    """Return a point's value as a suite's author writes it; None where it has none."""
    if key == "suite":
        return suite.name
    value, parameter = params.get(key), suite.family.parameter(key)
    if parameter is not None and parameter.kind == "size" and isinstance(value, int):
        return format_size(value).replace(" ", "")
    return None if value is None else str(value)


def _some(text: str, values: Sequence[str]) -> str:
    """List values, and the nearest to a text."""
    match = nearest(text, values)
    more = f" and {len(values) - MAX_SHOWN} more" if len(values) > MAX_SHOWN else ""
    return ", ".join(values[:MAX_SHOWN]) + more + (f" — did you mean '{match}'?" if match else "")


def _suites(
    plan: Plan, suites: Sequence[Suite], runner: RunnerProfile, selection: Selection
) -> list[UserError]:
    """Name the suites of which nothing is planned, together where the reason is one."""
    planned = {block["suite"] for block in plan.blocks}
    why: dict[tuple[str, str], list[str]] = {}
    for suite in suites:
        if suite.name not in planned:
            why.setdefault(_why(plan, suite, runner, selection), []).append(suite.name)
    return [
        (NothingRunsError if what.startswith(NOTHING_RUNS) else UserError)(
            what, where=", ".join(dict.fromkeys(names)), fix=fix
        )
        for (what, fix), names in why.items()
    ]


def _why(plan: Plan, suite: Suite, runner: RunnerProfile, selection: Selection) -> tuple[str, str]:
    """Say why nothing of a suite is planned, and what would help."""
    tier = suite.model.tiers.get(selection.tier)
    if tier is not None and tier.omit:
        other = next((n for n in ("standard", "full", "quick") if not _omits(suite, n)), "standard")
        return f"the {selection.tier} tier leaves it out: {tier.omit}", f"--tier={other}"
    skipped = [s for s in plan.data["skipped"] if s["suite"] == suite.name]
    if any(s["label"] is None for s in skipped):
        return skipped[0]["reason"], "paceline show SUITE lists its techniques"
    if skipped:
        return f"{NOTHING_RUNS} {runner.name}: {reasons(skipped)}", "paceline list runners"
    return NO_POINT, "other filters, or none"


def _omits(suite: Suite, tier: Any) -> bool:
    found = suite.model.tiers.get(tier)
    return found is not None and bool(found.omit)


def reasons(skipped: Iterable[Mapping[str, Any]]) -> str:
    """Count why cases are skipped, most frequent first."""
    counts = Counter(s["reason"] for s in skipped).most_common()
    more = [f"{len(counts) - MAX_SHOWN} more reasons"] if len(counts) > MAX_SHOWN else []
    return "; ".join([*(f"{count} × {reason}" for reason, count in counts[:MAX_SHOWN]), *more])


def _has(plan: Plan, labels: Iterable[str]) -> bool:
    wanted = set(labels)
    return any(case["label"] in wanted for block in plan.blocks for case in block["cases"])


def _techniques(plan: Plan, selection: Selection) -> list[UserError]:
    """Name the techniques of which no case is planned."""
    found = []
    for name in dict.fromkeys(selection.techniques):
        if not _has(plan, [name]):
            skipped = [s for s in plan.data["skipped"] if s["label"] == name]
            what = f"every case of '{name}' is skipped: {reasons(skipped)}"
            fewer = f"no point of the {plan.data['tier']} tier that is left has '{name}'"
            found.append(UserError(what if skipped else fewer, where="--techniques"))
    return found


def _of_file(plan: Plan, suites: Sequence[Suite], path: Path) -> tuple[list[UserError], bool]:
    """Name a file's techniques of which no case is planned; say whether any other is."""
    target = path.resolve()
    sources = {s.info.name: s for suite in suites for s in suite.sources.values() if s.path == target}
    lost, some = [], False
    for name, source in sources.items():
        joined = [s for s in suites if s.sources.get(name) is source and name in s.model.techniques]
        if not joined:
            continue  # it fits none of the suites: named when the files were read
        if any(c["technique"] == name for b in plan.blocks for c in b["cases"]):
            some = True
            continue
        skipped = [s for s in plan.data["skipped"] if s.get("technique") == name]
        why = f": {reasons(skipped)}" if skipped else ", which --filter or --techniques leave out"
        lost.append(
            UserError(
                f"no case of '{name}' would run{why}",
                where=f"{path}:{source.line}",
                fix=None if skipped else f"--techniques={name} beside the others, or fewer filters",
            )
        )
    return lost, some
