"""What all tests share: CI names the kinds of tests that must not be skipped."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import audit_hooks
import paceline_commands
import pytest
import seeds
import three_suites
import under_way
from figures import Figures

from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.report.tables.terminal import COLUMNS_ELSEWHERE
from paceline.workflows.stores import CACHE_VARIABLE

Mount = Callable[[Path, str], AbstractContextManager[Path]]

MUST_RUN = frozenset(filter(None, os.environ.get("PACELINE_MUST_RUN", "").split(",")))
"""Markers whose tests fail instead of being skipped; ``all``: every test but those that need an accelerator."""


@pytest.fixture(scope="session", autouse=True)
def one_audit_hook() -> Iterator[None]:
    """Let the guards of all tests hear audit events by one hook, and no longer than they live."""
    with audit_hooks.one_for_all():
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the tests a lease of their own, so that they wait for nobody, no cache, and the width of a terminal."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(folder))
        patch.setenv(CACHE_VARIABLE, "")
        # tables are as wide as the terminal: that of whoever runs the tests is no part of them
        patch.setenv("COLUMNS", str(COLUMNS_ELSEWHERE))
        yield folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the choice of a suite, and of a seed."""
    group = parser.getgroup("paceline's own tests")
    group.addoption(
        "--suite", choices=three_suites.SUITES, help="run the tests of this suite (docs/testing.md)"
    )
    group.addoption(
        "--outcomes", type=Path, help="measure tests until decided, and write what was found to this file"
    )
    group.addoption("--seed", type=int, help="the seed of what tests run, in the place of each module's own")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules that have no test of the suite."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return None if three_suites.may_hold(collection_path, config.getoption("--suite")) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one suite."""
    three_suites.select(config, items)


@pytest.fixture(scope="module", autouse=True)
def module_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of all that this module runs."""
    seeds.give(request.config.getoption("--seed"))
    return seeds.enter(request.node.nodeid, fresh=three_suites.draws_afresh(request.config, request.path))


@pytest.fixture
def fixed_plans(module_seed: int) -> Iterator[None]:
    """Let what a test runs in this process draw from its module's seed, where it asks for none."""
    with paceline_commands.fixed_plans(module_seed):
        yield


@pytest.fixture
def figure(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Figures:
    """Return what records a figure of a measured test with its bounds, and holds it to them."""
    if three_suites.suite_of(request.node) != "measured":
        pytest.fail("a figure is measured: mark its test so (docs/testing.md)", pytrace=False)
    return Figures(record_property)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note what runs, for whoever has to say what hung."""
    under_way.begin(nodeid)


def pytest_runtest_logfinish() -> None:
    """Note that nothing runs."""
    under_way.end()


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start be interrupted: what a shell has in the background ignores that, and all it starts does."""
    if path := config.getoption("--outcomes"):
        from measuring import Measuring

        config.pluginmanager.register(Measuring(path, config.rootpath), "paceline-measuring")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Do not look for garbage among thousands of tests, neither while they are found nor while they run.

    What tests make is looked through as seldom as the command line does it: that takes a twelfth of their time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    report = yield
    marks = {mark.name for mark in item.iter_markers()}
    required = {"all"} if "all" in MUST_RUN and "hardware" not in marks else MUST_RUN & marks
    if report.skipped and required and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI must run it ({', '.join(sorted(required))}): {report.longrepr}"
    if report.failed:
        report.sections.append(("seed of this module's runs", f"--seed {seeds.current()}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A module that skips itself while it is read has no test that could be told of."""
    report = yield
    if report.skipped and "all" in MUST_RUN:
        report.outcome = "failed"
        report.longrepr = f"skipped as a whole, but CI must run it: {report.longrepr}"
    return report


@pytest.fixture
def mounted() -> Mount:
    """Return a context that mounts a file system in memory; it is gone afterwards."""

    @contextlib.contextmanager
    def mount(folder: Path, options: str) -> Iterator[Path]:
        folder.mkdir()
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip(f"cannot mount: {made.stderr.decode().strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)

    return mount
