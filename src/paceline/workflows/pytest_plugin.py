"""Suites as test items: ``pytest --paceline suites/kernels/*.yaml``, stored and compared by pytest-benchmark.

All cases of a suite are measured together, interleaved, when its first item runs; every item then hands its samples
to pytest-benchmark, whose storage, comparison and histogram work as ever. Its options decide how long is measured:
``--benchmark-max-time``, ``--benchmark-min-rounds`` and, where it is given, ``--benchmark-precision``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from paceline.records.format.record import Measurement
    from paceline.spec.plans.plan import Plan
    from paceline.spec.suites.suite import Suite

METRIC = "latency"
FAILED = ("incorrect", "refused", "invalid", "crashed", "timeout", "out_of_memory", "infrastructure")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("paceline")
    group.addoption("--paceline", nargs="+", metavar="SUITE", default=[], help="Suite files to run as tests.")
    group.addoption(
        "--paceline-tier",
        default="standard",
        choices=("quick", "standard", "full"),
        help="Tier of the suites (default: standard).",
    )
    group.addoption(
        "--paceline-technique",
        action="append",
        default=[],
        help="A Python file with a technique of your own.",
    )
    group.addoption("--paceline-runner", default="local-cpu", help="Runner (default: local-cpu).")
    group.addoption("--paceline-launches", type=int, default=1, help="Launches of every case (default: 1).")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the suites instead of the project's own tests, unless tests were named too."""
    suites = config.getoption("--paceline")
    options = ("technique", "runner", "tier", "launches")
    given = [o for o in options if _given(config, f"--paceline-{o}")]
    if given and not suites:
        raise pytest.UsageError(
            f"--paceline-{given[0]} is about the suites of --paceline, and none is named\n"
            "  fix: --paceline SUITE.yaml"
        )
    if suites:
        named = config.args_source == pytest.Config.ArgsSource.ARGS
        config.args = [*(config.args if named else []), *suites]


def _given(config: pytest.Config, option: str) -> bool:
    """Say whether an option stands on the command line."""
    words = config.invocation_params.args
    return any(str(word).partition("=")[0] == option for word in words)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Make a collector of each suite file that was named."""
    wanted = {Path(name).resolve() for name in parent.config.getoption("--paceline")}
    if file_path.resolve() in wanted:
        collector: pytest.Collector = SuiteFile.from_parent(parent, path=file_path)
        return collector
    return None


class SuiteFile(pytest.File):
    """The cases of one suite."""

    _found: dict[tuple[str, str], list[Measurement]] | None = None
    _trouble: str | None = None
    """Why there is no record."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._told: dict[str, str] = {}
        """What is said of a failure → the item that said it."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item for each case that the runner can execute."""
        from paceline.base.errors import UserError  # noqa: PLC0415 - only when suites are asked for

        try:
            suite, plan = self._planned()
        except UserError as error:
            raise self.CollectError(str(error)) from None
        for block in plan.blocks:
            point = ",".join(f"{k}={v}" for k, v in block["params"].items() if _varies(k, plan))
            for case in block["cases"]:
                name = f"{suite.name}[{case['label']}{',' if point else ''}{point}]"
                test = self._test(name, block["block"], case["label"])
                yield pytest.Function.from_parent(self, name=name, callobj=test)

    def _planned(self) -> tuple[Suite, Plan]:
        from paceline.drivers.machine.devices import on_this_machine  # noqa: PLC0415 - as all below
        from paceline.spec import content  # noqa: PLC0415 - only when suites are asked for
        from paceline.spec.own.techniques import join_user_techniques  # noqa: PLC0415
        from paceline.spec.plans.plan import Selection, make_plan  # noqa: PLC0415
        from paceline.spec.plans.unmatched import unmatched, warning  # noqa: PLC0415
        from paceline.spec.profiles.profile import load_runner  # noqa: PLC0415
        from paceline.spec.suites.suite_file import load_suite  # noqa: PLC0415

        option = self.config.getoption
        files = [Path(name) for name in option("--paceline-technique")]
        paths = [Path(name) for name in option("--paceline")]
        loaded, strangers = join_user_techniques([load_suite(p, extra=files) for p in paths], files)
        suite = next(s for p, s in zip(paths, loaded, strict=True) if p.resolve() == self.path.resolve())
        selection = Selection(tier=option("--paceline-tier"), launches=option("--paceline-launches"))
        runner = on_this_machine(load_runner(content.find_runner(option("--paceline-runner"))))
        plan = make_plan([suite], runner, selection)
        for text in [*map(warning, strangers), *unmatched(plan, [suite], runner, selection, files)]:
            self.warn(pytest.PytestWarning(text))
        for block in plan.blocks:
            block["protocol"].update(_protocol(self.config))
        return suite, plan

    def _test(self, name: str, block: str, label: str) -> Callable[[Any], None]:
        def test(benchmark: Any) -> None:
            measurements = self._measured().get((block, label), [])
            self._judge(name, measurements)
            _hand_over(benchmark, measurements)

        return test

    def _judge(self, name: str, measurements: list[Measurement]) -> None:
        """Fail or skip an item without numbers; what an earlier item failed for is not said again."""
        from paceline.analysis.failures import grouped  # noqa: PLC0415 - only when suites are asked for

        everything = [m for found in (self._found or {}).values() for m in found]
        for failure in grouped(everything):
            own = [m for m in failure.measurements if any(m is other for other in measurements)]
            if own:
                said = f"{failure.status}: {failure.said}"
                if failure.status not in FAILED:
                    pytest.skip(said)
                first = self._told.setdefault(said, name)
                pytest.fail(said if first == name else f"{failure.status}: as {first}", pytrace=False)
        if not measurements:
            said = self._trouble or "the run ended without a result for this case"
            first = self._told.setdefault(said, name)
            pytest.fail(said if first == name else f"no result: as {first}", pytrace=False)

    def _measured(self) -> dict[tuple[str, str], list[Measurement]]:
        """Measure the suite once; return the measurements of each case."""
        from paceline.base.errors import PacelineError  # noqa: PLC0415
        from paceline.drivers.measure import measure  # noqa: PLC0415
        from paceline.records.store.folder import read_record  # noqa: PLC0415

        if self._found is None:
            suite, plan = self._planned()
            self._found = {}
            record = None
            with tempfile.TemporaryDirectory() as folder:
                try:
                    outcome = measure(plan, [suite], Path(folder), reason="manual")
                except PacelineError as error:
                    self._trouble = str(error)
                else:
                    record = read_record(outcome.path) if outcome.path is not None else None
            for m in record.measurements if record is not None else ():
                if m.metric.name == METRIC or m.status != "ok":
                    self._found.setdefault((m.block, m.label), []).append(m)
        return self._found


def _varies(key: str, plan: Plan) -> bool:
    return len({str(block["params"].get(key)) for block in plan.blocks}) > 1


def _protocol(config: pytest.Config) -> dict[str, Any]:
    """Return the protocol settings that pytest-benchmark's options ask for."""
    found: dict[str, Any] = {}
    if config.pluginmanager.hasplugin("benchmark"):
        found["max_seconds"] = float(config.getoption("benchmark_max_time"))
        found["min_samples"] = int(config.getoption("benchmark_min_rounds"))
        precision = config.getoption("benchmark_precision", None)
        if precision:
            found["ci_target"] = float(precision)
    return found


def _hand_over(benchmark: Any, measurements: list[Measurement]) -> None:
    """Give the samples to pytest-benchmark as if it had taken them."""
    first = measurements[0]
    benchmark._mode = "paceline"
    benchmark.extra_info.update(
        suite=first.suite,
        technique=first.label,
        metric=METRIC,
        launches=[m.value for m in measurements],
        **first.params,
    )
    if benchmark.disabled:
        return
    stats = benchmark._make_stats(1)
    for m in measurements:
        for sample in m.samples:
            stats.update(sample)
