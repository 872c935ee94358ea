"""Turns the events of a job into the lines of a record, as they come in or all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline import __version__
from paceline.base.aliases import METRICS
from paceline.base.families.family import Family, Metric, Observed, load_family
from paceline.records.format.contracts import metric_id
from paceline.records.format.limits import MAX_LAUNCH
from paceline.records.format.record import Event, Line, Measurement, Run
from paceline.records.identity import host_class, record_id, series_host, series_key, utc
from paceline.spec.plans.plan import Plan
from paceline.spec.techniques.fence import SANDBOXED
from paceline.stats.estimates import launch_statistic
from paceline.worker.sandbox.bubblewrap import UNISOLATED

KEPT_EVENTS = (
    "launch_begin",
    "launch_end",
    "raised",
    "out_of_time",
    "unreadable",
    "block_end",
    "block_stopped",
    "submitted",
    "task_end",
)
ISOLATED_FLAGS = {"bubblewrap": "sandboxed", "user-namespaces": "sandboxed", "unisolated": "unisolated"}
"""Flags of a candidate's numbers, by what it ran in."""
NAMING = ("event", "block", "label", "launch", "share")
"""What a result that is not legal keeps of itself: the case and the launch that it was of, and where."""


class Collector:
    """Validates events and makes record lines of them; it keeps what later lines need."""

    def __init__(self, plan: Plan, run_id: str) -> None:
        self.plan = plan
        self.run_id = run_id
        self.host: Mapping[str, Any] | None = None
        self._hosts: dict[int | None, Mapping[str, Any]] = {}
        """What each share of a divided job said of its host; one that was not divided has no number."""
        self.statuses: dict[str, int] = {}
        """Number of cases by status."""
        self.done: set[tuple[int, str, str]] = set()
        """(launch, block, label) of every case that has ended."""
        self.stopped: dict[str, int] = {}
        """Block → launches after which it ended, where it was measured until decided."""
        self.artifacts: set[str] = set()
        """Names of files that go with the record."""
        self.digests: dict[str, str] = {}
        """What the controller knows of such files, by their names."""
        self.container: Mapping[str, Any] | None = None
        """What the run was asked to run in: ``container`` for the record, and ``request``."""
        self._runner = plan.data["runner"]
        self._num_nodes = int(self._runner.get("nodes", 1))
        self._blocks = {b["block"]: b for b in plan.blocks}
        self._versions = {s["suite"]: s["version"] for s in plan.data["suites"]}
        self._families: dict[str, Family] = {}

    def enclose(self, event: Mapping[str, Any]) -> None:
        """Note the container of the run; the first that is told of counts, for ranks could tell of others."""
        if self.container is None:
            self.container = event
            name = event["container"]["sbom"]
            self.artifacts.add(name)
            self.digests[name] = event["container"]["sbom_sha256"]

    def lines(self, event: Mapping[str, Any]) -> Iterator[Line]:
        """Yield the record lines of one event; an event that is not legal becomes an ``unreadable`` event."""
        kind = event.get("event")
        try:
            if kind == "host":
                self.host = event
                self._hosts[event.get("share")] = event
            elif kind in ("result", "case_failed"):
                yield from self._case(event)
            elif kind == "container":
                data = {"image_id": event["container"]["image_id"], "session": event["session"]}
                yield Event(kind="submitted", at=utc(event["time_s"]), run_id=self.run_id, data=data)
            elif kind in KEPT_EVENTS:
                if kind == "block_stopped" and event["block"] in self._blocks:
                    self.stopped[event["block"]] = int(event["launches"])
                data = {k: v for k, v in event.items() if k not in ("event", "time_s")}
                yield Event(kind=kind, at=utc(event.get("time_s")), run_id=self.run_id, data=data)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            text = f"{type(error).__name__}: {error}"
            data = {"why": text[:500], "event": str(kind), "label": str(event.get("label"))}
            yield Event(kind="unreadable", at=utc(), run_id=self.run_id, data=data)
            if kind == "result" and self._known(event):
                named = {key: event[key] for key in NAMING if isinstance(event.get(key), str | int)}
                reason = f"an illegal result was refused: {text[:300]}"
                yield from self._case({**named, "status": "invalid", "reason": reason})

    def _known(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event names a case and a launch of the plan."""
        block = self._blocks.get(str(event.get("block")))
        labels = [c["label"] for c in block["cases"]] if block else []
        launch = event.get("launch")
        return event.get("label") in labels and type(launch) is int and 0 <= launch <= MAX_LAUNCH

    def _case(self, event: Mapping[str, Any]) -> Iterator[Measurement]:
        block = self._blocks[event["block"]]
        case = next((c for c in block["cases"] if c["label"] == event["label"]), None)
        if case is None:
            raise ValueError(f"the plan has no technique '{event['label']}' at this point")
        key = (int(event["launch"]), str(event["block"]), str(event["label"]))
        if key in self.done:
            return
        family = self._family(block["family"])
        event = _completed(_named_today(event), block, family)
        event["isolation"] = _isolation(event, case, block["family"], self._runner)
        status = event["status"]
        if status == "ok":
            lines = list(self._measured(event, block, case, family))
        else:
            name = family.default_metrics[0]
            lines = [self._line(event, block, case, family, name, None)]
        self.done.add(key)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        yield from lines

    def _measured(
        self,
        event: Mapping[str, Any],
        block: Mapping[str, Any],
        case: Mapping[str, Any],
        family: Family,
    ) -> Iterator[Measurement]:
        names = sorted(event["metrics"], key=lambda n: (n != family.default_metrics[0], n))
        if not names:
            raise ValueError("a result without any metric")
        for position, name in enumerate(names):
            yield self._line(event, block, case, family, name, event["metrics"][name], first=position == 0)

    def _line(
        self,
        event: Mapping[str, Any],
        block: Mapping[str, Any],
        case: Mapping[str, Any],
        family: Family,
        name: str,
        data: Mapping[str, Any] | None,
        *,
        first: bool = True,
    ) -> Measurement:
        metric = family.metric(name)
        samples = [] if data is None else [float(s) for s in data["samples"]]
        predicted = (event.get("predicted") or {}).get(name)
        correctness = event.get("correctness")
        of = block["family"]
        told = metric_id(of, metric)
        series = series_host(self._host_class(event), self._runner, block["ranks"])
        return Measurement(
            record_id=record_id(of, self.run_id, block["block"], case["label"], event["launch"], name),
            run_id=self.run_id,
            suite=block["suite"],
            suite_version=self._versions[block["suite"]],
            family=of,
            block=block["block"],
            case_id=case["case_id"],
            series_key=series_key(of, case["case_id"], case["technique"], series, told.contract_id),
            launch=event["launch"],
            attempt=min(max(int(event.get("attempt", 0)), 0), MAX_LAUNCH),
            params=block["params"],
            technique=case["technique"],
            label=case["label"],
            options=case["options"],
            role=case["role"],
            scale={"nodes": min(self._num_nodes, block["ranks"]), "ranks": block["ranks"]},
            metric=told,
            samples=samples,
            value=launch_statistic(samples, metric.statistic) if event["status"] == "ok" else None,
            n=len(samples),
            order=(data or {}).get("positions"),
            instances=(data or {}).get("instances"),
            warmup=(data or {}).get("warmup"),
            stop_reason=(data or {}).get("stop_reason"),
            flags=list(dict.fromkeys([*(data or {}).get("flags", ()), *_marks(event, metric)])),
            cross_rank=(data or {}).get("cross_rank"),
            ceilings=event.get("ceilings") if first else None,
            predicted=float(predicted) if predicted is not None else None,
            accounting=_accounting(event) if first else None,
            status=event["status"],
            reason=event.get("reason"),
            detail=event.get("detail"),
            correctness=correctness if first or correctness is None else {"passed": correctness["passed"]},
            isolation=event.get("isolation"),
            absent=(event.get("absent") or None) if first else None,
            artifacts=self._artifacts(event) if first else None,
        )

    def _artifacts(self, event: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the files that go with a result, by their places beside the record.

        Raises:
            ValueError: One is named by more than a file's name, and might lie anywhere.
        """
        found = event.get("artifacts") or {}
        if not isinstance(found, dict):
            raise ValueError(f"artifacts are {type(found).__name__}, and not names of files by what they are")
        for file in found.values():
            if not isinstance(file, str) or file in ("", ".", "..") or Path(file).name != file:
                raise ValueError(f"{file!r} is no file of the job's artifacts")
        self.artifacts |= set(found.values())
        return {name: f"{self.run_id}/{file}" for name, file in found.items()} or None

    def _host_class(self, event: Mapping[str, Any]) -> str | None:
        found = self._hosts.get(event.get("share"), self.host)
        return None if found is None else host_class(found["host"], found["device"])

    def _family(self, name: str) -> Family:
        if name not in self._families:
            self._families[name] = load_family(name)
        return self._families[name]


def _isolation(
    event: Mapping[str, Any], case: Mapping[str, Any], family: str, runner: Mapping[str, Any]
) -> str | None:
    """Return what a candidate's number ran in; None of a shipped technique, and of what has no number.

    Where a family's candidates run beside their judge, they reach what writes the events: what these say of a sandbox
    is believed only where one is made.
    """
    if event.get("status") != "ok" or not str(case["module"]).startswith("user:"):
        return None
    made = family in SANDBOXED and runner["device"] == "cpu" and runner.get("isolation") != UNISOLATED
    return str(event["isolation"]) if made and event.get("isolation") in ISOLATED_FLAGS else UNISOLATED


def _marks(event: Mapping[str, Any], metric: Metric) -> list[str]:
    """Return the flags that a whole result gives its numbers: what it ran in, and whether it was slowed down."""
    found = event.get("isolation")
    marks = [] if found is None else [ISOLATED_FLAGS[found]]
    timed = metric.unit == "s" or metric.unit.endswith("/s")
    if timed and (event.get("telemetry") or {}).get("throttled"):
        marks.append("throttled")
    return marks


def _named_today(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result by today's names of metrics: the job folder may be of an older version."""
    tables = {
        key: event[key] for key in ("metrics", "predicted", "absent") if isinstance(event.get(key), dict)
    }
    return {**event, **{key: METRICS.keys_today(table) for key, table in tables.items()}}


def _completed(event: dict[str, Any], block: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return a result with the metrics that its family computes from what was measured."""
    if event.get("status") != "ok" or not family.computed:
        return event
    samples = {name: found["samples"] for name, found in event["metrics"].items()}
    observed = Observed(params=block["params"], samples=samples, accounting=event.get("accounting") or {})
    metrics, absent = dict(event["metrics"]), dict(event.get("absent") or {})
    for computed in family.computed:
        found = computed.of(observed, str(block["params"][family.operation_key]))
        if isinstance(found, str):
            absent[computed.metric.name] = found
        elif found is not None:
            metrics[computed.metric.name] = {"samples": found}
    return {**event, "metrics": metrics, "absent": absent}


def _accounting(event: Mapping[str, Any]) -> dict[str, Any] | None:
    accounting = dict(event.get("accounting") or {})
    for key in ("harness", "telemetry", "clock"):
        if event.get(key):
            accounting[key] = event[key]
    return accounting or None


def make_run(
    plan: Plan,
    facts: Mapping[str, Any],
    host: Mapping[str, Any] | None,
    enclosure: Mapping[str, Any] | None = None,
) -> Run:
    """Make the run line from the controller's facts, what the worker said about its host, and what it runs in."""
    found = host or {}
    container = None
    if enclosure is not None:
        container = {**enclosure["container"], "sbom": f"{facts['run_id']}/{enclosure['container']['sbom']}"}
    return Run(
        run_id=facts["run_id"],
        started=facts["started"],
        reason=facts.get("reason", "manual"),
        argv=facts["argv"],
        tool_version=facts.get("tool_version", __version__),
        suites=facts["suites"],
        tier=plan.data["tier"],
        plan_sha256=plan.sha256,
        plan={
            "groups": [{k: g[k] for k in ("group", "ranks", "link")} for g in plan.data["groups"]],
            "skipped": plan.data["skipped"],
            "num_cases": plan.num_cases,
            "num_results": plan.num_results,
            "protocols": {b["suite"]: b["protocol"] for b in plan.blocks},
            **({"part": plan.data["part"]} if "part" in plan.data else {}),
        },
        runner=plan.data["runner"],
        request=enclosure["request"] if enclosure else None,
        container=container,
        code=facts["code"],
        techniques=facts["techniques"],
        packages=found.get("packages"),
        host=found.get("host"),
        host_class=host_class(found["host"], found["device"]) if found else None,
        device=found.get("device"),
        telemetry=_telemetry(found, facts),
        seeds={"seed": plan.data["seed"], "fixed": plan.data["fixed_seed"]},
        flags=found.get("flags") or {},
        environment=found.get("environment") or {},
        linked_run=facts.get("linked_run"),
    )


def _telemetry(found: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the worker read of its device, with what the controller saw on the machine before."""
    telemetry, machine = found.get("telemetry"), facts.get("machine")
    return {**(telemetry or {}), "machine": machine} if machine else telemetry
