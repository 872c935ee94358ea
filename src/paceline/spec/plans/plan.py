"""Suites × runner → plan: every case with its identity, what is skipped and why, and how long it will take.

A plan is plain data. The same inputs give the same bytes: nothing in it depends on time, host or order of discovery.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.base.aliases import SUITES, params_first, technique_first
from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.contracts import identifying_contracts
from paceline.base.families.family import Family, Scalar, load_family
from paceline.base.techniques.requirements import present
from paceline.spec.plans.compared import planned_protocol, stop_rule
from paceline.spec.plans.duration import Observation, estimate
from paceline.spec.plans.points import excluded, matches, points_in
from paceline.spec.profiles.profile import RunnerProfile
from paceline.spec.suites.grammar import TechniqueEntry, Tier, TierName, merge_protocol
from paceline.spec.suites.launches import Launches
from paceline.spec.suites.suite import Entry, Suite

PLAN_FORMAT = 1
CaseKey = tuple[str, str, str]
"""Suite, canonical parameters, label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a person asked for on the command line."""

    tier: TierName = "standard"
    techniques: tuple[str, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    """Keys and values; a point has one of the values of every key."""
    launches: Launches | int | None = None
    """A number of launches, or a range in which every suite is measured until decided."""
    budget_s: float | None = None
    """Time after which no further launch starts; every suite is measured until decided."""
    seed: int | None = None
    only: frozenset[CaseKey] | None = None
    """Only these cases: what a record holds, when it is measured again."""
    skip_after_hang: bool = False
    """Whether a technique that hung at one point is skipped at all others."""
    one_by_one: tuple[str, ...] = ()
    """Names of suites in the order in which each is measured to its end; empty: launches of all suites in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan and what may be read off it."""

    data: Mapping[str, Any] = field(repr=False)

    @property
    def text(self) -> str:
        """The plan as canonical JSON."""
        return canonical(self.data)

    @property
    def sha256(self) -> str:
        """Digest of the canonical JSON."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def blocks(self) -> Sequence[Mapping[str, Any]]:
        """All blocks."""
        blocks: Sequence[Mapping[str, Any]] = self.data["blocks"]
        return blocks

    @property
    def num_cases(self) -> int:
        """Number of cases that will run."""
        return sum(len(b["cases"]) for b in self.blocks)

    @property
    def num_results(self) -> int:
        """Number of results that a complete run gives at most: cases times launches."""
        return self.results_after({})

    def results_after(self, stopped: Mapping[str, int]) -> int:
        """Return how many results a complete run gives whose blocks were decided after so many launches."""
        return expected_results(self.blocks, stopped)


def expected_results(blocks: Iterable[Mapping[str, Any]], stopped: Mapping[str, int]) -> int:
    """Return how many results blocks give: cases times launches, of which some blocks needed only so many."""
    return sum(len(b["cases"]) * stopped.get(b["block"], b["protocol"]["launches"]) for b in blocks)


def canonical(data: Any) -> str:
    """Write plain data as JSON that is equal for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: Any, length: int = 16) -> str:
    """Return the first hex digits of the SHA-256 of canonical JSON."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:length]


def make_plan(suites: Iterable[Suite], runner: RunnerProfile, selection: Selection) -> Plan:
    """Resolve suites on a runner.

    Raises:
        UserError: An unknown technique or parameter in the selection, or nothing left to run.
    """
    suites = sorted(suites, key=lambda s: s.name)
    _check_selection(suites, selection)
    stopping: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    settings = runner.resolved()
    for suite in suites:
        tier = suite.model.tiers.get(selection.tier)
        left_out = _left_out(suite, tier, selection)
        if left_out:
            skipped.append({"suite": suite.name, "label": None, "params": {}, "reason": left_out})
            continue
        protocol = _protocol(suite, tier, selection)
        if "looks" in protocol:
            stopping[suite.name] = stop_rule(suite, protocol)
        _plan_suite(suite, tier, runner, selection, protocol, blocks, skipped)
    data: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "tier": selection.tier,
        "runner": settings,
        "suites": [{"suite": s.name, "version": s.model.version, "family": s.family.name} for s in suites],
        "blocks": blocks,
        "groups": _groups(blocks),
        "skipped": skipped,
        "fixed_seed": selection.seed is not None,
    }
    if stopping:
        data["stopping"] = {"budget_s": selection.budget_s, "suites": stopping}
    data["seed"] = selection.seed if selection.seed is not None else int(digest(data, 12), 16)
    if selection.skip_after_hang:
        data["skip_after_hang"] = True
    if selection.one_by_one:
        data["one_by_one"] = list(selection.one_by_one)
    data["preload"] = sorted({module for s in suites for module in s.family.preload})
    data["estimate"] = estimate(data, {s.family.name: s.family.estimate_s for s in suites})
    return Plan(data=data)


def part_of(plan: Plan, blocks: Collection[str]) -> Plan:
    """Return the plan with some of its blocks only, which says of how many; the whole plan if they are all."""
    kept = [b for b in plan.blocks if b["block"] in blocks]
    if len(kept) == len(plan.blocks):
        return plan
    data = {
        **plan.data,
        "blocks": kept,
        "groups": _groups(kept),
        "part": {"num_blocks": len(kept), "of_blocks": len(plan.blocks)},
    }
    data["estimate"] = estimate(data, observations(data))
    return Plan(data=data)


def observations(data: Mapping[str, Any]) -> dict[str, Observation]:
    """Return the formula of each family of a plan."""
    return {name: load_family(name).estimate_s for name in {b["family"] for b in data["blocks"]}}


def _left_out(suite: Suite, tier: Tier | None, selection: Selection) -> str | None:
    """Say why nothing of a suite is planned, or None: a baseline by itself compares nothing that was asked for."""
    if tier is not None and tier.omit:
        return tier.omit
    labels = {t if isinstance(t, str) else t.label or t.technique for t in _given(suite, tier)}
    if selection.techniques and not labels & set(selection.techniques):
        return f"it has none of the techniques {', '.join(selection.techniques)}"
    return None


def _given(suite: Suite, tier: Tier | None) -> list[str | TechniqueEntry]:
    return tier.techniques if tier and tier.techniques else suite.model.techniques


def _protocol(suite: Suite, tier: Tier | None, selection: Selection) -> dict[str, Any]:
    launches = selection.launches
    if isinstance(launches, int):
        launches = Launches(first=launches)
    try:
        return planned_protocol(merge_protocol(suite.model.protocol, tier), launches, selection.budget_s)
    except ValueError as error:
        raise UserError(
            str(error), where=suite.located.where(("protocol",)), fix="--launches=5..60 names another range"
        ) from error


def _plan_suite(
    suite: Suite,
    tier: Tier | None,
    runner: RunnerProfile,
    selection: Selection,
    protocol: dict[str, Any],
    blocks: list[dict[str, Any]],
    skipped: list[dict[str, Any]],
) -> None:
    model = suite.model
    at = ("tiers", selection.tier, "techniques") if tier and tier.techniques else ("techniques",)
    entries = suite.entries(_given(suite, tier), suite.located.where(at))
    wanted = set(selection.techniques)
    if wanted:
        entries = [e for e in entries if e.label in wanted or e.label == model.baseline]
    rules = [*model.exclude, *(tier.exclude if tier else [])]
    taken = {b["block"] for b in blocks}
    for params in points_in(suite, tier, runner):
        if not matches(params, suite, selection.filters):
            continue
        problems = suite.family.check(params)
        reason = "; ".join(problems) or _unrunnable(params, runner)
        cases = []
        for entry in entries:
            if (
                selection.only is not None
                and (suite.name, canonical(params), entry.label) not in selection.only
            ):
                continue
            if any(excluded(rule, params, entry.label, suite) for rule in rules):
                continue
            why = reason or _unsupported(suite, entry, params, runner)
            case = _case(suite, entry, params)
            if why:
                skipped.append({"suite": suite.name, "params": params, "reason": why, **case})
            else:
                cases.append(case)
        if not cases:
            continue
        block = _block(suite, params, protocol, runner, cases)
        if block["block"] in taken:
            raise UserError(
                f"the same point occurs twice: {canonical(params)}",
                where=suite.located.where(("matrix",)),
                expected="values that differ once units are resolved, and suites of different names",
            )
        taken.add(block["block"])
        blocks.append(block)


def _block(
    suite: Suite,
    params: Mapping[str, Scalar],
    protocol: dict[str, Any],
    runner: RunnerProfile,
    cases: list[dict[str, Any]],
) -> dict[str, Any]:
    link = runner.link(str(params["link"])) if "link" in params else {}
    return {
        "block": digest(
            [SUITES.first(suite.name), params_first(suite.family.name, params), suite.model.version], 10
        ),
        "suite": suite.name,
        "family": suite.family.name,
        "params": dict(params),
        "ranks": params.get("ranks") or 1,
        "link": link,
        "protocol": protocol,
        "baseline": suite.model.baseline,
        "cases": cases,
    }


def case_id(
    family: Family, params: Mapping[str, Scalar], technique: str, label: str, options: Mapping[str, Any]
) -> str:
    """Return the id of a case, 16 hexadecimal digits: the same from version to version, whatever else is added.

    Args:
        family: Its family.
        params: The point, in base units, with its operation.
        technique: Name of the technique.
        label: What the suite calls it.
        options: What the technique is given.
    """
    operation = str(params.get(family.operation_key, ""))
    identity: dict[str, Any] = {
        "family": family.name,
        "params": params_first(family.name, params),
        "technique": technique_first(family.name, technique),
        "options": options,
        "contracts": identifying_contracts(family.name, operation, family.measured_by(operation)),
    }
    if label != technique:
        identity["label"] = technique_first(family.name, label)
    return digest(identity)


def _case(suite: Suite, entry: Entry, params: Mapping[str, Scalar]) -> dict[str, Any]:
    name = entry.source.info.name
    return {
        "case_id": case_id(suite.family, params, name, entry.label, entry.options),
        "label": entry.label,
        "technique": name,
        "module": entry.source.module,
        "sha256": entry.source.sha256,
        "role": "baseline" if entry.label == suite.model.baseline else "technique",
        "options": dict(entry.options),
    }


def _unrunnable(params: Mapping[str, Scalar], runner: RunnerProfile) -> str | None:
    ranks = params.get("ranks")
    if isinstance(ranks, int) and ranks > runner.model.max_ranks:
        return f"needs {number_of(ranks, 'rank')}; runner {runner.name} offers {runner.model.max_ranks}"
    if isinstance(ranks, int) and runner.num_devices is not None and ranks > runner.num_devices:
        return f"needs {number_of(ranks, 'device')}, {present(runner.num_devices)} here"
    if "link" in params and runner.link(str(params["link"])) is None:
        return f"needs the link '{params['link']}', which runner {runner.name} does not offer"
    return None


def _unsupported(
    suite: Suite, entry: Entry, params: Mapping[str, Scalar], runner: RunnerProfile
) -> str | None:
    info = entry.source.info
    operation = str(params.get(suite.family.operation_key, ""))
    if operation not in info.implements:
        return f"{info.name} does not implement {operation}"
    ranks, dtype = params.get("ranks"), params.get("dtype")
    return info.requires.unmet(
        ranks=ranks if isinstance(ranks, int) else None,
        dtype=str(dtype) if dtype is not None else None,
        device=runner.model.device,
    ) or suite.family.unsupported(params, info)


def _check_selection(suites: Sequence[Suite], selection: Selection) -> None:
    labels = {
        entry.label
        for suite in suites
        for given in (
            suite.model.techniques,
            *(t.techniques or [] for t in suite.model.tiers.values()),
        )
        for entry in suite.entries(given, suite.name)
    }
    for name in selection.techniques:
        if name not in labels:
            raise UserError(
                f"no suite has the technique '{name}'",
                where="--techniques",
                expected=expected_one_of(name, labels),
            )
    keys = {"suite"} | {p.name for s in suites for p in s.family.parameters}
    for key, _ in selection.filters:
        if key not in keys:
            raise UserError(
                f"cannot filter by '{key}'", where="--filter", expected=expected_one_of(key, keys)
            )


def _groups(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Collect the blocks that one process group can execute: same family, ranks and link."""
    groups: dict[str, dict[str, Any]] = {}
    for block in blocks:
        link_name = block["link"].get("name", "none")
        key = f"{block['family']}-{block['ranks']}-{link_name}"
        group = groups.setdefault(
            key,
            {
                "group": key,
                "family": block["family"],
                "ranks": block["ranks"],
                "link": block["link"],
                "blocks": [],
            },
        )
        group["blocks"].append(block["block"])
    return [groups[key] for key in sorted(groups)]
