"""``paceline check``: does a technique conform to its operation?"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_OK, EXIT_REGRESSION, UserError
from paceline.cli.inspection.inspect import check_technique
from paceline.cli.options import json_option, machine_options, print_json, warn
from paceline.drivers.machine.occupation import occupied
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.workflows.conformance import NOT_RUN, ConformanceResult, problems_of, run_conformance

MOST_VALUES = 6
"""Of a parameter; of more the first and the last are named."""
MOST_POINTS = 3
"""At which one fault is shown."""
TRACEBACK_LINES = 8
"""Of a crash, its last ones: where the technique's own code stands."""
JOB_FOLDER = re.compile(r"/\S*/jobs/[^/\s]+/(?:engine/)?")
"""Where ranks find the harness and the technique; it is gone when its name is read."""


@click.command("check")
@click.argument("techniques", metavar="TECHNIQUE…", nargs=-1, required=True)
@click.option("--family", default=None, help="Whose, where two families have one of that name.")
@click.option("--op", "operations", multiple=True, help="Only this operation; may be repeated.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    multiple=True,
    help="Only this number of ranks; may be repeated [default: the family's, 1 to 4].",
)
@click.option("--brief", is_flag=True, help="Few points of each operation; the gate is the same.")
@click.option(
    "--keep-going", is_flag=True, help="Try a technique that hung at one point at its other points too."
)
@click.option("--runner", default="local-cpu", show_default=True, help="Where: a runner's name or file.")
@machine_options
@json_option
def check(
    techniques: tuple[str, ...],
    family: str | None,
    operations: tuple[str, ...],
    ranks: tuple[int, ...],
    brief: bool,
    keep_going: bool,
    runner: str,
    wait_s: float,
    allow_concurrent: bool,
    as_json: bool,
) -> None:
    """Check that techniques conform, each TECHNIQUE a FILE.py or a name: no number is kept.

    First its source is read, as `paceline validate` does. Then it runs in real process groups at small and odd sizes.
    Its results are held against the operation's oracle, and what it sends against its cost(). After one hang, which is
    told at once, a technique's other points are skipped. Exit code 0: it
    conforms; 1: it does not, or ran at no point; 2: its source is refused.
    """
    techniques = tuple(dict.fromkeys(techniques))
    profile = load_runner(content.find_runner(runner)).resolved()
    isolation = profile.get("isolation", "auto") if profile["device"] == "cpu" else "unisolated"
    for name in techniques:
        if name.endswith(".py"):
            check_technique(Path(name), isolation)
    if profile["device"] == "fake":
        raise UserError(
            f"the runner '{runner}' computes nothing: its clock is invented",
            where="--runner",
            expected="a runner whose ranks compute, such as local-cpu",
            fix="paceline list runners",
        )
    with (
        occupied(profile, wait_s=wait_s, allow_concurrent=allow_concurrent, say=warn),
        tempfile.TemporaryDirectory(prefix="paceline-check-") as folder,
    ):
        results = run_conformance(
            techniques,
            family=family,
            operations=operations,
            ranks=ranks,
            brief=brief,
            runner=runner,
            folder=Path(folder),
            keep_going=keep_going,
            quiet=as_json,
        )
    problems = problems_of(results)
    if as_json:
        print_json({"problems": problems, "results": [_plain(r) for r in results]})
    else:
        click.echo("\n".join(report(results)))
    sys.exit(EXIT_REGRESSION if problems else EXIT_OK)


def report(results: Sequence[ConformanceResult]) -> list[str]:
    """Return what was checked of each technique, and what failed with its reason, as lines."""
    lines = []
    for technique in dict.fromkeys(r.technique for r in results):
        own = [r for r in results if r.technique == technique]
        lines.append(f"{technique}: {'does not conform' if problems_of(own) else 'conforms'}")
        for operation in dict.fromkeys(r.operation for r in own):
            lines += (
                f"  {line}" for line in _operation(operation, [r for r in own if r.operation == operation])
            )
    return lines


def _operation(operation: str, results: Sequence[ConformanceResult]) -> Iterator[str]:
    """Say what was checked of one operation."""
    passed = [r for r in results if r.status == "ok" and r.fault is None]
    varying = _varying(r.params for r in results)
    yield f"{operation}: {len(passed)} of {number_of(len(results), 'point')} passed"
    yield f"  points: {_values(varying) or _named(results[0], results[0].params)}"
    right = [r for r in results if r.status == "ok"]
    for oracle in dict.fromkeys(str(r.correctness.get("oracle")) for r in right):
        own = [r.correctness for r in right if str(r.correctness.get("oracle")) == oracle]
        gate, timed = (_sum(own, key) for key in ("gate_checks", "timed_calls_verified"))
        counts = [f"{gate:g} checks by the gate" if gate else ""]
        counts += [f"{timed:g} timed calls verified" if timed else ""]
        more = ", ".join(c for c in counts if c)
        yield f"  oracle: {oracle}{f' ({more})' if more else ''}"
    for isolation in dict.fromkeys(r.isolation for r in right if r.isolation):
        yield f"  isolation: {isolation}"
    counted = dict.fromkeys(m for r in right for m in r.predicted if m in r.measured)
    if counted:
        yield f"  counted and compared with cost(): {', '.join(sorted(counted))}"
    for reason, left in _grouped(results, lambda r: r.reason or r.status if r.status in NOT_RUN else None):
        yield f"  not run at {_points(left, varying)}: {reason}"
    shown: list[list[str]] = []
    for fault, failed in _grouped(results, lambda r: r.fault):
        yield f"  failed at {_points(failed, varying)}: {fault}"
        traceback = JOB_FOLDER.sub("", failed[0].detail or "").splitlines()[-TRACEBACK_LINES:]
        if traceback not in shown:  # faults at several points may differ in a number alone
            yield from (f"    | {line}" for line in traceback)
        shown.append(traceback)
    if all(r.status in NOT_RUN for r in results):
        yield "  failed: it ran at no point, so nothing is known of it"


def _grouped(results: Iterable[ConformanceResult], key: Any) -> Iterator[tuple[str, list[ConformanceResult]]]:
    groups: dict[str, list[ConformanceResult]] = {}
    for result in results:
        if (text := key(result)) is not None:
            groups.setdefault(text, []).append(result)
    yield from groups.items()


def _sum(facts: Iterable[Mapping[str, Any]], key: str) -> float:
    return sum(v for f in facts if isinstance(v := f.get(key), int | float))


def _varying(params: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each parameter that has several, in order."""
    found: dict[str, dict[Any, None]] = {}
    for point in params:
        for key, value in point.items():
            found.setdefault(key, {})[value] = None
    return {
        key: sorted(values, key=lambda v: (isinstance(v, str), v is None, v if v is not None else 0))
        for key, values in found.items()
        if len(values) > 1
    }


def _values(varying: Mapping[str, Sequence[Any]]) -> str:
    texts = []
    for key, values in varying.items():
        words = [str(v) for v in values]
        if len(words) > MOST_VALUES:
            words = [f"{words[0]} to {words[-1]}, {number_of(len(words), 'value')}"]
        texts.append(f"{key} {', '.join(words)}")
    return "; ".join(texts)


def _points(results: Sequence[ConformanceResult], varying: Iterable[str]) -> str:
    """Name points by what sets them apart; of many the first."""
    names = list(varying)
    shown = [_named(r, names) or "the only point" for r in results[:MOST_POINTS]]
    more = [f"{len(results) - MOST_POINTS} more"] if len(results) > MOST_POINTS else []
    return " | ".join([*shown, *more])


def _named(result: ConformanceResult, names: Iterable[str]) -> str:
    """Return a point's values of some parameters, without those that stand for nothing."""
    return " ".join(
        f"{n}={v}" for n in names if n != "op" and (v := result.params.get(n)) not in (None, "none")
    )


def _plain(result: ConformanceResult) -> dict[str, Any]:
    names = (
        "technique",
        "operation",
        "params",
        "status",
        "reason",
        "problem",
        "measured",
        "predicted",
        "correctness",
        "isolation",
    )
    return {name: getattr(result, name) for name in names}
