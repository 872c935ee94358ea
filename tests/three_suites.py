"""Three suites: what decides by right and wrong alone and is quick, what takes long, and what asks a machine's speed.

``gate``      ``make test``: what has to pass before a change lands.
``full``      ``make test-full``: the gate, and what starts real engines or takes long. No clock decides there either.
``measured``  ``make test-measured``: what needs the machine's own speed, or real time, to mean something.

A test's own marker decides, then its class's, then its module's, then its folder. docs/testing.md says who runs which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

SUITES = ("gate", "full", "measured")
FULL_FOLDERS = frozenset(
    (
        "accelerator",
        "conformance",
        "distributed",
        "docker",
        "kubernetes",
        "netns",
        "nightly",
        "sandbox",
        "serving",
        "setup",
        "site",
        "slurm",
        "timing",
    )
)
"""Whose tests start ranks, servers, daemons or browsers; of each the gate runs those that are marked for it."""
CONTAINED = {
    "gate": frozenset({"gate"}),
    "full": frozenset({"gate", "full"}),
    "measured": frozenset({"measured"}),
}
"""The suites of the tests that a command runs."""
TIMEOUTS_S = {"gate": 60, "full": 600, "measured": 600}
"""Of a test and its fixtures, where it says nothing else; a fixture of ``full`` measures for all of its module."""
_FRESH = pytest.StashKey[set[Path]]()


def may_hold(path: Path, asked: str | None) -> bool:
    """Tell whether a module can have a test of a suite: to read all modules of the others takes longer than to look.

    A test of a folder of the full suite is in the gate, and any test is measured, by a marker alone, which its module
    names.
    """
    by_marker = {"gate": path.parent.name in FULL_FOLDERS, "measured": True}.get(asked or "", False)
    return not by_marker or f"mark.{asked}" in path.read_text(encoding="utf-8")


def suite_of(item: pytest.Item) -> str:
    """Return the suite that a test belongs to."""
    for node in reversed(item.listchain()):
        names = {mark.name for mark in node.own_markers}
        for suite in ("measured", "full", "gate"):
            if suite in names:
                return suite
    folder = item.path.parent.name
    return "full" if folder in FULL_FOLDERS else "gate"


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark all but one in N cases of each test that says ``one_in(N)`` as those of the full suite.

    Values of parameters come in turns: a good N has no factor in common with how many there are of each.
    """
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        chosen = item.get_closest_marker("one_in")
        if chosen is None:
            continue
        test = item.path, item.nodeid.partition("[")[0]
        if seen[test] % int(chosen.args[0]):
            item.add_marker(pytest.mark.full)
        seen[test] += 1


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the suite that was asked for, all where none was, and give each the time of its suite."""
    thin(items)
    asked = config.getoption("--suite")
    kept, dropped = [], []
    fresh = config.stash.setdefault(_FRESH, set())
    for item in items:
        suite = suite_of(item)
        if asked and suite not in CONTAINED[asked]:
            dropped.append(item)
            continue
        kept.append(item)
        if suite == "measured":
            fresh.add(item.path)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[suite]))
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def draws_afresh(config: pytest.Config, module: Path) -> bool:
    """Tell whether what a module runs is measured, so that its seed is new each time."""
    return module in config.stash[_FRESH]
