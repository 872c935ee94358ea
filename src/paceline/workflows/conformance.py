"""For authors of techniques: the conformance run that every technique has to pass.

``conformance`` measures nothing for publication. It plans a suite of odd sizes, dtypes and ranks around the given
techniques, executes it in real process groups through the ordinary driver, and returns what the oracle and the byte
counters said about each case. ``paceline check`` prints that. Authors write no test code of their own::

    from paceline.workflows.conformance import conformance, problems_of

    def test_my_technique_conforms(tmp_path):
        assert problems_of(conformance([Path("mine.py")], folder=tmp_path)) == []

For authors of load generators and of what stands before servers: ``MockServer``, which answers as one that serves a
language model at instants that ``Behaviour`` states.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from paceline.base.errors import InfrastructureError, UserError, expected_one_of
from paceline.base.families.family import Scalar, family_names, load_family, off_formula
from paceline.base.techniques.technique import TechniqueSource
from paceline.drivers.machine.devices import on_this_machine
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.families.serving.core.load.findings.certificate import blames_client
from paceline.families.serving.core.mock import FAULTS, Behaviour, Freeze, Gaps, MockServer
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord, read_record
from paceline.spec import content
from paceline.spec.own.techniques import declared
from paceline.spec.plans.plan import CaseKey, Selection, canonical, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.argument_names import speaks_python

__all__ = [
    "FAULTS",
    "Behaviour",
    "ConformanceResult",
    "Freeze",
    "Gaps",
    "MockServer",
    "conformance",
    "points_of",
    "problems_of",
    "results_of",
    "run_conformance",
    "run_suites",
]

CHECK_PROTOCOL: Mapping[str, Scalar] = {
    "launches": 1,
    "warmup": "none",
    "min_samples": 3,
    "max_samples": 4,
    "max_seconds": 0.05,
    "kernel_calls": 0,
    "timeout": "60s",
}

NOT_RUN = ("unsupported", "skipped")
MORE_TRIES = 3
"""How often cases are measured again whose load client a busy machine made late: what conforms hangs on no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceResult:
    """What one technique did at one point."""

    technique: str
    operation: str
    params: Mapping[str, Any]
    status: str
    reason: str | None
    measured: Mapping[str, float] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    correctness: Mapping[str, Any] = field(default_factory=dict)
    """What the gate did: its oracle, how many results it compared, the largest error; empty unless it passed."""
    detail: str | None = None
    """The traceback, where there is one."""
    isolation: str | None = None
    """What a user's kernel ran in; None for what is shipped."""

    @property
    def fault(self) -> str | None:
        """Say what does not conform without saying where, or None; a point that it does not support is no fault."""
        if self.status in NOT_RUN:
            return None
        if self.status != "ok":
            return f"{self.status}: {self.reason}"
        return off_formula(self.measured, self.predicted)

    @property
    def problem(self) -> str | None:
        """Say what does not conform, and at which point, or None."""
        point = {k: v for k, v in self.params.items() if k != "op"}
        return None if self.fault is None else f"{self.technique} {self.operation} {point}: {self.fault}"


def problems_of(results: Sequence[ConformanceResult]) -> list[str]:
    """Return why techniques do not conform; empty where they do.

    A technique that ran at no point of an operation has shown nothing, which is a problem too.
    """
    cases: dict[tuple[str, str], list[ConformanceResult]] = {}
    for result in results:
        cases.setdefault((result.technique, result.operation), []).append(result)
    problems = []
    for (technique, operation), found in cases.items():
        problems += [r.problem for r in found if r.problem]
        if all(r.status in NOT_RUN for r in found):
            reasons = "; ".join(dict.fromkeys(r.reason or r.status for r in found))
            problems.append(f"{technique} {operation}: it ran at no point: {reasons}")
    return problems


def run_conformance(
    techniques: Sequence[str | Path],
    *,
    family: str | None = None,
    operations: Sequence[str] = (),
    ranks: Sequence[int] = (),
    brief: bool = False,
    variants: Sequence[Mapping[str, Any]] = (),
    runner: str = "local-cpu",
    folder: Path,
    seed: int | None = None,
    keep_going: bool = False,
    quiet: bool = True,
) -> list[ConformanceResult]:
    """Run techniques through their family's conformance points in real process groups.

    Args:
        techniques: Names, or Python files (paths, or texts that end in ``.py``) of which every technique is meant; all
            of them are of one family, and share the process groups of the run.
        family: The family that they belong to; None for the one that has them.
        operations: Only these; empty means everything that the techniques implement.
        ranks: Numbers of ranks; empty means the family's own choice (1 to 4).
        brief: Few points for each operation; the gate is the same.
        variants: Techniques with options, as suites write them: ``{"technique": …, "as": …, "options": {…}}``.
        runner: Name or path of the runner; it says how many ranks there may be.
        folder: An empty folder for suites, job and record.
        seed: What all inputs and orders follow from; None draws them anew, so that nothing can be prepared for them.
        keep_going: Try a technique that hung at one point at all others too, and wait for each.
        quiet: Draw no progress bar on standard error.

    Raises:
        UserError: An unknown technique, or nothing that this runner could measure.
    """
    given = [Path(t) if str(t).endswith(".py") else t for t in techniques]
    files = [t for t in given if isinstance(t, Path)]
    chosen = _chosen(given, family)
    family = chosen[0].info.family
    wanted = list(operations) or sorted({o for s in chosen for o in s.info.implements})
    suites: list[Path] = []
    bare: list[str] = []
    for operation in wanted:
        able = [s for s in chosen if operation in s.info.implements]
        points = _points_module(family, operation)
        cases = points_of(family, operation, brief=brief)
        if able and not cases:
            bare.append(operation)
        if able and cases:
            names = [s.info.name for s in able]
            entries: list[str | Mapping[str, Any]] = [
                *names,
                *(v for v in variants if v["technique"] in names),
            ]
            suites.append(
                _write_suite(
                    folder,
                    family,
                    operation,
                    entries,
                    cases,
                    tuple(ranks) or getattr(points, "RANKS", (1,)),
                    {**CHECK_PROTOCOL, **getattr(points, "PROTOCOL", {})},
                )
            )
    if bare and not suites:
        raise UserError(
            f"{', '.join(bare)} of {family} has no conformance points: its suites judge every run whole",
            fix=f"paceline run {family}/SUITE --technique FILE",
        )
    record = run_suites(
        suites, folder=folder, runner=runner, files=files, seed=seed, keep_going=keep_going, quiet=quiet
    )
    results = results_of(record, family)
    if not results:
        at = f" with ranks {list(ranks)}" if ranks else ""
        asked = ", ".join(s.info.name for s in chosen)
        raise UserError(
            f"no point of {asked} was planned on runner '{runner}'{at}",
            fix="name operations that the techniques implement, and a runner whose max_ranks is large enough",
        )
    return results


conformance = speaks_python(run_conformance)
"""``run_conformance`` for tests and scripts: its errors name arguments in the place of options."""


def points_of(family: str, operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points at which an operation's techniques must conform; few of them where ``brief``."""
    module = _points_module(family, operation)
    if module is None:
        return []
    of_one = module.__name__.endswith(f".ops.{operation}.conformance")
    found: list[dict[str, Scalar]] = (
        module.points(brief=brief) if of_one else module.points(operation, brief=brief)
    )
    return found


def _points_module(family: str, operation: str) -> ModuleType | None:
    """Return the module that knows an operation's points: its own, or its family's; None where there are none."""
    own, all_ = f"paceline.families.{family}.ops.{operation}", f"paceline.families.{family}"
    names = [f"{own}.conformance"] if operation in load_family(family).operations else []
    for name in [*names, f"{all_}.conformance"]:
        if find_spec(name) is not None:
            return importlib.import_module(name)
    return None


def _chosen(techniques: Sequence[str | Path], family: str | None) -> list[TechniqueSource]:
    """Find techniques by name or file.

    Raises:
        UserError: None is given, one is unknown or of several families, or they are of different ones.
    """
    families = [family] if family else [n for n in family_names() if not load_family(n).internal]
    known = {name: content.techniques(name) for name in families}
    chosen: list[TechniqueSource] = []
    for given in techniques:
        if isinstance(given, Path):
            chosen += declared(given)
            continue
        found = [sources[given] for sources in known.values() if given in sources]
        if not found:
            names = {name for sources in known.values() for name in sources}
            raise UserError(
                f"unknown technique '{given}'",
                expected=f"{expected_one_of(given, names)} — or a file, such as {given.rpartition('/')[2]}.py",
                fix="paceline list techniques",
            )
        if len(found) > 1:
            of = " and ".join(s.info.family for s in found)
            raise UserError(f"'{given}' is a technique of {of}", fix=f"--family={found[0].info.family}")
        chosen += found
    if len({s.info.family for s in chosen}) != 1 or (family and chosen[0].info.family != family):
        of = ", ".join(f"{s.info.name} of {s.info.family}" for s in chosen) or "no technique"
        raise UserError(
            f"{of}: a conformance run is of one family", fix="check those of each family on their own"
        )
    return chosen


def _write_suite(
    folder: Path,
    family: str,
    operation: str,
    entries: Sequence[str | Mapping[str, Any]],
    cases: Sequence[Mapping[str, Scalar]],
    ranks: Sequence[int],
    protocol: Mapping[str, Scalar],
) -> Path:
    keys = sorted({k for c in cases for k in c})
    groups = [{k: [c.get(k) for c in cases] for k in keys}]
    known = {p.name for p in load_family(family).parameters_for(operation)}
    document = {
        "suite": f"{family}/conformance-{operation.replace('_', '-')}",
        "version": 1,
        "family": family,
        "description": "Every technique must conform.",
        "workload": {load_family(family).operation_key: operation},
        "baseline": entries[0],
        "techniques": [e if isinstance(e, str) else dict(e) for e in entries],
        "matrix": {"ranks": list(ranks)} if "ranks" in known else {},
        "zip": groups,
        "protocol": dict(protocol),
    }
    path = folder / f"conformance-{operation.replace('_', '-')}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def run_suites(
    paths: Sequence[Path],
    *,
    folder: Path,
    runner: str = "local-cpu",
    files: Sequence[Path] = (),
    seed: int | None = None,
    keep_going: bool = True,
    quiet: bool = True,
) -> RunRecord:
    """Run suite files through the local driver without reports, and return the record.

    ``files`` hold techniques of the suites that are not among those that ``paceline list techniques`` knows. Cases that
    were refused for a late load client are measured again; their measurements are then those of the last time. With a
    ``seed`` all that is drawn follows from it. Unless it is to ``keep_going``, a technique that hung at one point is
    skipped at all others.
    """
    suites = [load_suite(p, extra=files) for p in paths]
    selection = Selection(seed=seed, skip_after_hang=not keep_going)
    record = _measured(suites, selection, folder, runner, quiet=quiet)
    for number in range(MORE_TRIES):
        late = frozenset(_case(m) for m in record.measurements if _is_late(m))
        if not late:
            break
        again = folder / f"again-{number}"
        again.mkdir()
        fresh = _measured(suites, replace(selection, only=late), again, runner, quiet=quiet)
        kept = [m for m in record.measurements if _case(m) not in late]
        record = replace(record, measurements=(*kept, *fresh.measurements))
    return record


def _is_late(measurement: Measurement) -> bool:
    return measurement.status == "invalid" and blames_client(measurement.reason)


def _case(measurement: Measurement) -> CaseKey:
    return measurement.suite, canonical(measurement.params), measurement.label


def _measured(
    suites: Sequence[Suite], selection: Selection, folder: Path, runner: str, *, quiet: bool
) -> RunRecord:
    plan = make_plan(suites, on_this_machine(load_runner(content.find_runner(runner))), selection)
    with RunProgress(plan, (), quiet=quiet) as progress:
        outcome = measure(plan, suites, folder / "results", on_event=progress.event)
    if outcome.path is None:
        raise InfrastructureError("interrupted: nothing was decided")
    return read_record(outcome.path)


def results_of(record: RunRecord, family: str) -> list[ConformanceResult]:
    """Group a record's measurements by case."""
    key = load_family(family).operation_key
    grouped: dict[tuple[str, str], list[Any]] = {}
    for m in record.measurements:
        grouped.setdefault((m.block, m.label), []).append(m)
    results = []
    for measurements in grouped.values():
        first = measurements[0]
        results.append(
            ConformanceResult(
                technique=first.label,
                operation=str(first.params[key]),
                params=first.params,
                status=first.status,
                reason=first.reason,
                measured={m.metric.name: m.value for m in measurements if m.value is not None},
                predicted={m.metric.name: m.predicted for m in measurements if m.predicted is not None},
                correctness=dict(first.correctness or {}),
                detail=first.detail if isinstance(first.detail, str) else None,
                isolation=first.isolation,
            )
        )
    return results
