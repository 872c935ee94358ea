"""Lines of records by the names of today: what a file of an older version calls otherwise is renamed when it is read.

Files stay as they are; identities in them are digests over first names (``paceline.base.aliases``), and still fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.aliases import (
    METRICS,
    PARAMETERS,
    SUITE_KEYS,
    SUITES,
    TECHNIQUES,
    params_today,
    technique_today,
)


def named_today(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a record file with the names of today, before it is checked.

    Values of other types than a record has are left alone: the check refuses them.
    """
    kind = line.get("line")
    if kind == "measurement":
        return _measurement(line)
    if kind == "event":
        return _event(line)
    return _run(line) if kind == "run" else line


def _measurement(line: dict[str, Any]) -> dict[str, Any]:
    family = line.get("family")
    if not isinstance(family, str):
        return line
    changed = dict(line)
    _apply(changed, "suite", SUITES.today)
    if family in TECHNIQUES:
        _apply(changed, "technique", lambda name: technique_today(family, name))
        _apply(changed, "label", lambda name: technique_today(family, name))
    if family in PARAMETERS and isinstance(changed.get("params"), dict):
        changed["params"] = params_today(family, changed["params"])
    changed |= metrics_today(changed)
    return changed


def metrics_today(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields of a measurement that hold names of metrics, by the names of today."""
    changed: dict[str, Any] = {}
    metric, absent, accounting = line.get("metric"), line.get("absent"), line.get("accounting")
    if isinstance(metric, dict) and isinstance(metric.get("name"), str):
        changed["metric"] = metric | {"name": METRICS.today(metric["name"])}
    if isinstance(absent, dict):
        changed["absent"] = METRICS.keys_today(absent)
    if isinstance(accounting, dict) and isinstance(accounting.get("votes"), dict):
        changed["accounting"] = accounting | {"votes": METRICS.keys_today(accounting["votes"])}
    return changed


def _event(line: dict[str, Any]) -> dict[str, Any]:
    """Return an event by today's names: waivers and baseline runs are about suites, techniques and metrics."""
    data = line.get("data")
    if not isinstance(data, dict):
        return line
    changed = dict(data)
    family = str(data.get("suite", "")).partition("/")[0]
    _apply(changed, "suite", SUITES.today)
    _apply(changed, "metric", METRICS.today)
    if line.get("kind") == "waiver":
        _apply(changed, "technique", lambda name: technique_today(family, name))
    if isinstance(data.get("suites"), list):
        changed["suites"] = [SUITES.today(s) if isinstance(s, str) else s for s in data["suites"]]
    return line | {"data": changed}


def _run(line: dict[str, Any]) -> dict[str, Any]:
    changed = dict(line)
    suites, plan, techniques = line.get("suites"), line.get("plan"), line.get("techniques")
    if isinstance(suites, list):
        changed["suites"] = [_suite(s) if isinstance(s, dict) else s for s in suites]
    if isinstance(plan, dict) and isinstance(plan.get("skipped"), list):
        given = [s for s in suites or () if isinstance(s, dict)] if isinstance(suites, list) else []
        families = {str(s.get("suite")): str(s.get("family")) for s in given}
        skipped = [_skipped(s, families) if isinstance(s, dict) else s for s in plan["skipped"]]
        changed["plan"] = plan | {"skipped": skipped}
    if isinstance(techniques, dict):
        changed["techniques"] = {_technique_path(key): value for key, value in techniques.items()}
    return changed


def _technique_path(path: str) -> str:
    """Return ``family/technique`` by today's name."""
    family, _, name = path.partition("/")
    return f"{family}/{technique_today(family, name)}" if name else path


def _skipped(facts: dict[str, Any], families: Mapping[str, str]) -> dict[str, Any]:
    """Return what was left out of a run; a suite's folder is its family's, where the run does not say another."""
    changed, suite = dict(facts), str(facts.get("suite", ""))
    family = families.get(suite, suite.partition("/")[0])
    _apply(changed, "suite", SUITES.today)
    for key in ("label", "technique"):
        _apply(changed, key, lambda name: technique_today(family, name))
    if isinstance(facts.get("params"), dict):
        changed["params"] = params_today(family, facts["params"])
    return changed


def _suite(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts of a suite as it was when it ran, by today's names."""
    changed = SUITE_KEYS.keys_today(facts)
    family = str(facts.get("family", ""))
    _apply(changed, "suite", SUITES.today)
    _apply(changed, "baseline", lambda name: technique_today(family, name))
    if isinstance(facts.get("metrics"), dict):
        changed["metrics"] = METRICS.keys_today(facts["metrics"])
    if isinstance(facts.get("diagnostic"), list):
        changed["diagnostic"] = [METRICS.today(n) if isinstance(n, str) else n for n in facts["diagnostic"]]
    if isinstance(facts.get("claims"), list):
        changed["claims"] = [_claim(family, c) if isinstance(c, dict) else c for c in facts["claims"]]
    if isinstance(facts.get("tuning"), dict):
        tuning = changed["tuning"] = dict(facts["tuning"])
        _apply(tuning, "suite", SUITES.today)
        _apply(tuning, "metric", METRICS.today)
        if isinstance(tuning.get("untuned"), dict):
            tuning["untuned"] = {technique_today(family, n): why for n, why in tuning["untuned"].items()}
    return changed


def _claim(family: str, claim: Mapping[str, Any]) -> dict[str, Any]:
    changed = SUITE_KEYS.keys_today(claim)
    if isinstance(claim.get("measure"), dict):
        changed["measure"] = _side(family, claim["measure"])
    if isinstance(claim.get("premises"), list):
        changed["premises"] = [_premise(family, p) if isinstance(p, dict) else p for p in claim["premises"]]
    return changed


def _premise(family: str, premise: Mapping[str, Any]) -> dict[str, Any]:
    changed = dict(premise)
    for key in ("of", "over"):
        if isinstance(premise.get(key), dict):
            changed[key] = _side(family, premise[key])
    _apply(changed, "reached_by", lambda name: technique_today(family, name))
    return changed


def _side(family: str, side: Mapping[str, Any]) -> dict[str, Any]:
    """Return a side of a claim; its other side may be a label or a side of its own."""
    changed = dict(side)
    _apply(changed, "metric", METRICS.today)
    _apply(changed, "technique", lambda name: technique_today(family, name))
    _apply(changed, "versus", lambda name: technique_today(family, name))
    if isinstance(side.get("where"), dict):
        changed["where"] = params_today(family, side["where"])
    if isinstance(side.get("versus"), dict):
        changed["versus"] = _side(family, side["versus"])
    return changed


def _apply(facts: dict[str, Any], key: str, rename: Any) -> None:
    if isinstance(facts.get(key), str):
        facts[key] = rename(facts[key])
