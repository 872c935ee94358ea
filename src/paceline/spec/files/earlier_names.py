"""Suites that were written for an older version: names that were changed since are read, and a note says so.

What a file says is renamed before it is checked, lines included, so that every message is about the names of today.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from paceline.base.aliases import (
    METRICS,
    NOTHING,
    PARAMETERS,
    SUITE_KEYS,
    SUITES,
    TECHNIQUES,
    VALUES,
    Renamed,
    RenamedValues,
)
from paceline.spec.files.yaml_file import KeyPath, Located


def described(located: Located) -> Located:
    """Return a runner profile or a file of nights with the keys of today."""
    reading = _Reading(located)
    reading.keys((), SUITE_KEYS)
    return reading.result()


def suite_named_today(located: Located) -> Located:
    """Return a suite file with the names of today; each old one leaves a note."""
    reading = _Reading(located)
    family = reading.at(("family",))
    reading.keys((), SUITE_KEYS)
    reading.value(("suite",), SUITES)
    names = _Names(reading, family if isinstance(family, str) else "")
    names.techniques(("baseline",))
    names.techniques(("techniques",))
    names.params(("workload",))
    names.params(("matrix",))
    names.rows(("zip",))
    names.rows(("exclude",))
    reading.keys(("metrics",), METRICS)
    for tier in reading.items(("tiers",)):
        names.techniques((*tier, "techniques"))
        for key in ("workload", "matrix"):
            names.params((*tier, key))
        for key in ("zip", "exclude"):
            names.rows((*tier, key))
    for claim in reading.items(("claims",)):
        reading.keys(claim, SUITE_KEYS)
        names.side((*claim, "measure"))
        for premise in reading.items((*claim, "premises")):
            names.premise(premise)
    for premise in reading.items(("premises",)):
        names.premise(premise)
    reading.value(("tuning", "suite"), SUITES)
    reading.value(("tuning", "metric"), METRICS)
    reading.keys(("tuning", "untuned"), names.labels)
    return reading.result()


def techniques_today(names: Iterable[str], families: Iterable[str]) -> tuple[str, ...]:
    """Return names of techniques that somebody gave for suites of some families as they are called today."""
    tables = [TECHNIQUES[family] for family in families if family in TECHNIQUES]
    found = []
    for name in names:
        new = [table.today(name) for table in tables if table.today(name) != name]
        found.append(new[0] if new else name)
    return tuple(found)


def filters_today(
    filters: Iterable[tuple[str, str]], parameters: Mapping[str, Collection[str]]
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return filters of points by the names of today, and a note for each that was renamed.

    Args:
        filters: Parameters and values, as somebody gave them.
        parameters: Names of the parameters of every family that they are about.
    """
    found, notes = [], []
    for key, text in filters:
        known = any(key in names for names in parameters.values())
        tables = [] if known else [PARAMETERS.get(family, NOTHING) for family in parameters]
        new = next((table.today(key) for table in tables if table.today(key) != key), key)
        values = [VALUES[family, new] for family in parameters if (family, new) in VALUES]
        value = next((_written(v.today(text)) for v in values if v.today(text) != text), text)
        if (new, value) != (key, text):
            notes.append(f"the filter '{key}={text}' is called '{new}={value}' now")
        found.append((new, value))
    return tuple(found), notes


class _Reading:
    """A file's data that is renamed place by place, in a copy that the first change makes."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._data = located.data
        self._lines = located.lines
        self._notes: list[str] = []

    def result(self) -> Located:
        """Return the renamed file, with notes on what was renamed."""
        if not self._notes:
            return self._located
        notes = (*self._located.notes, *self._notes)
        return replace(self._located, data=self._data, lines=self._lines, notes=notes)

    def at(self, path: KeyPath) -> Any:
        """Return what stands at a place, or None."""
        found = self._data
        for part in path:
            if isinstance(part, int):
                found = found[part] if isinstance(found, list) and part < len(found) else None
            else:
                found = found.get(part) if isinstance(found, dict) else None
        return found

    def items(self, path: KeyPath) -> list[KeyPath]:
        """Return the places of a list's items, or of a mapping's values."""
        found = self.at(path)
        if isinstance(found, dict):
            return [(*path, key) for key in found]
        return [(*path, number) for number in range(len(found))] if isinstance(found, list) else []

    def value(self, path: KeyPath, names: Renamed | RenamedValues) -> None:
        """Rename a text; what takes its place may be of another type."""
        old = self.at(path)
        if not isinstance(old, str) or (new := names.today(old)) == old:
            return
        self._note(path, old, _written(new))
        self.at(path[:-1])[path[-1]] = new

    def keys(self, path: KeyPath, names: Renamed) -> None:
        """Rename the keys of a mapping; where the new one stands there too, the old one stays and is refused later."""
        found = self.at(path)
        if not isinstance(found, dict):
            return
        changed = {old: new for old in found if (new := names.today(old)) != old and new not in found}
        if not changed:
            return
        for old, new in changed.items():
            self._note((*path, old), old, new)
        found = self.at(path)
        renamed = {changed.get(key, key): value for key, value in found.items()}
        found.clear()
        found.update(renamed)
        self._lines = {_moved(place, path, changed): line for place, line in self._lines.items()}

    def _note(self, path: KeyPath, old: str, new: str) -> None:
        """Note a change that is about to be made."""
        if not self._notes:
            self._data = deepcopy(self._located.data)
        place = f"{self._located.path}:{self._lines.get(path, 1)}"
        self._notes.append(f"{place}: '{old}' is called '{new}' now")


def _written(value: object) -> str:
    """Return a value as suites write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _moved(place: KeyPath, path: KeyPath, changed: dict[str, str]) -> KeyPath:
    """Return the place by its new key, where it lies at or below one that was changed."""
    depth = len(path)
    if len(place) <= depth or place[:depth] != path:
        return place
    return (*path, changed.get(str(place[depth]), place[depth]), *place[depth + 1 :])


class _Names:
    """Names that depend on a suite's family."""

    def __init__(self, reading: _Reading, family: str) -> None:
        self._reading = reading
        self._family = family
        self.labels = TECHNIQUES.get(family, NOTHING)

    def techniques(self, path: KeyPath) -> None:
        """Rename a technique, or the entries of a list of techniques."""
        self._reading.value(path, self.labels)
        for item in self._reading.items(path):
            self._reading.value(item, self.labels)
            for key in ("technique", "as"):
                self._reading.value((*item, key), self.labels)

    def params(self, path: KeyPath) -> None:
        """Rename parameters and their named values, single ones and lists."""
        self._reading.keys(path, PARAMETERS.get(self._family, NOTHING))
        for item in self._reading.items(path):
            if (names := VALUES.get((self._family, str(item[-1])))) is not None:
                for place in self._reading.items(item) or [item]:
                    self._reading.value(place, names)

    def rows(self, path: KeyPath) -> None:
        """Rename parameters in every item of a list, such as rules of what is left out."""
        for item in self._reading.items(path):
            self.params(item)
            self._reading.value((*item, "technique"), self.labels)

    def side(self, path: KeyPath) -> None:
        """Rename one side of a claim, and its other side."""
        self._reading.value((*path, "metric"), METRICS)
        for key in ("technique", "versus"):
            self._reading.value((*path, key), self.labels)
        self.params((*path, "where"))
        if isinstance(self._reading.at((*path, "versus")), dict):
            self.side((*path, "versus"))

    def premise(self, path: KeyPath) -> None:
        """Rename the numbers of a premise, and the arm that reaches a bound."""
        for key in ("of", "over"):
            self.side((*path, key))
        self._reading.value((*path, "reached_by"), self.labels)
