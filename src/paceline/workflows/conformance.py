"""For authors of techniques: the conformance run that every technique has to pass.

``conformance`` measures nothing for publication. It plans a suite of odd sizes, dtypes and ranks around the given
techniques, executes it in real process groups through the ordinary driver, and returns what the oracle and the byte
counters said about each case. Authors write no test code of their own::

    from paceline.workflows.conformance import conformance

    def test_my_technique_conforms(tmp_path):
        assert not [r for r in conformance(["vendor/mine"], folder=tmp_path) if r.problem]

For authors of load generators and of what stands before servers: ``MockServer``, which answers as one that serves a
language model at instants that ``Behaviour`` states.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from paceline.base.errors import UserError
from paceline.base.family import Scalar, load_family, off_formula
from paceline.drivers.measure import measure
from paceline.families.serving.core.mock import FAULTS, Behaviour, Freeze, Gaps, MockServer
from paceline.records.store import RunRecord, read_record
from paceline.spec import content
from paceline.spec.plan import Selection, make_plan
from paceline.spec.profile import load_runner
from paceline.spec.suite import load_suite

__all__ = [
    "FAULTS",
    "Behaviour",
    "ConformanceResult",
    "Freeze",
    "Gaps",
    "MockServer",
    "conformance",
    "points_of",
    "results_of",
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

    @property
    def problem(self) -> str | None:
        """Say what does not conform, or None."""
        point = {k: v for k, v in self.params.items() if k != "op"}
        if self.status in ("unsupported", "skipped"):
            return None
        if self.status != "ok":
            return f"{self.technique} {self.operation} {point}: {self.status}: {self.reason}"
        off = off_formula(self.measured, self.predicted)
        return None if off is None else f"{self.technique} {self.operation} {point}: {off}"


def conformance(
    techniques: Sequence[str],
    *,
    family: str = "collectives",
    operations: Sequence[str] = (),
    ranks: Sequence[int] = (),
    brief: bool = False,
    variants: Sequence[Mapping[str, Any]] = (),
    runner: str = "local-cpu",
    folder: Path,
) -> list[ConformanceResult]:
    """Run techniques through their family's conformance points in real process groups.

    Args:
        techniques: Names; all techniques of the run share its process groups.
        family: The family that they belong to.
        operations: Only these; empty means everything that the techniques implement.
        ranks: Numbers of ranks; empty means the family's own choice (1 to 4).
        brief: Few points for each operation; the gate is the same.
        variants: Techniques with options, as suites write them: ``{"technique": …, "as": …, "options": {…}}``.
        runner: Name or path of the runner; it says how many ranks there may be.
        folder: An empty folder for suites, job and record.

    Raises:
        UserError: An unknown technique, or nothing that this runner could measure.
    """
    sources = content.techniques(family)
    unknown = [t for t in techniques if t not in sources]
    if unknown:
        raise UserError(f"unknown technique '{unknown[0]}'", fix="paceline list techniques")
    chosen = [sources[t] for t in techniques]
    wanted = list(operations) or sorted({o for s in chosen for o in s.info.implements})
    suites = []
    for operation in wanted:
        able = [s for s in chosen if operation in s.info.implements]
        cases = points_of(family, operation, brief=brief)
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
                    tuple(ranks) or _points_module(family, operation).RANKS,
                )
            )
    results = results_of(run_suites(suites, folder=folder, runner=runner), family)
    if not results:
        at = f" with ranks {list(ranks)}" if ranks else ""
        raise UserError(
            f"no point of {', '.join(techniques)} was planned on runner '{runner}'{at}",
            fix="name operations that the techniques implement, and a runner whose max_ranks is large enough",
        )
    return results


def points_of(family: str, operation: str, *, brief: bool = False) -> list[dict[str, Scalar]]:
    """Return the points at which an operation's techniques must conform; few of them where ``brief``."""
    module = _points_module(family, operation)
    of_one = module.__name__.endswith(f".ops.{operation}.conformance")
    found: list[dict[str, Scalar]] = (
        module.points(brief=brief) if of_one else module.points(operation, brief=brief)
    )
    return found


def _points_module(family: str, operation: str) -> ModuleType:
    """Return the module that knows an operation's points: its own, or its family's."""
    own = f"paceline.families.{family}.ops.{operation}"
    if operation in load_family(family).operations and importlib.util.find_spec(f"{own}.conformance"):
        return importlib.import_module(f"{own}.conformance")
    return importlib.import_module(f"paceline.families.{family}.conformance")


def _write_suite(
    folder: Path,
    family: str,
    operation: str,
    entries: Sequence[str | Mapping[str, Any]],
    cases: Sequence[Mapping[str, Scalar]],
    ranks: Sequence[int],
) -> Path:
    keys = sorted({k for c in cases for k in c})
    groups = [{k: [c.get(k) for c in cases] for k in keys}]
    document = {
        "suite": f"{family}/conformance-{operation.replace('_', '-')}",
        "version": 1,
        "family": family,
        "description": "Every technique must conform.",
        "workload": {load_family(family).operation_key: operation},
        "baseline": entries[0],
        "techniques": [e if isinstance(e, str) else dict(e) for e in entries],
        "matrix": {"ranks": list(ranks)} if load_family(family).parameter("ranks") else {},
        "zip": groups,
        "protocol": dict(CHECK_PROTOCOL),
    }
    path = folder / f"conformance-{operation.replace('_', '-')}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def run_suites(paths: Sequence[Path], *, folder: Path, runner: str = "local-cpu") -> RunRecord:
    """Run suite files through the local driver without progress or reports, and return the record."""
    suites = [load_suite(p) for p in paths]
    plan = make_plan(suites, load_runner(content.find_runner(runner)), Selection())
    outcome = measure(plan, suites, folder / "results")
    assert outcome.path is not None, "the run was interrupted"
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
            )
        )
    return results
