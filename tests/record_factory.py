"""Legal records without a run: what tests of the store, of comparisons and of claims are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.families import contracts
from paceline.base.families.family import load_family
from paceline.records.format.record import Event, Measurement, MetricId, Run, dump_line
from paceline.records.format.record_file import content_of, is_packed, pack, plain_form
from paceline.records.identity import new_run_id, record_id, series_key, utc
from paceline.records.store.folder import RunRecord
from paceline.records.store.manifest import add_to_manifest
from paceline.records.store.record_writer import RecordWriter
from paceline.stats.estimates import launch_statistic

HOST = "Some CPU, 2 cores, 16 GiB"
POINT = {
    "op": "all_reduce",
    "size_bytes": 4096,
    "dtype": "float32",
    "ranks": 2,
    "link": "loopback",
    "payload": "gaussian",
}


def make_run(**changes: Any) -> Run:
    """Return a run line of one suite with two techniques."""
    facts: dict[str, Any] = {
        "run_id": new_run_id(),
        "started": "2026-11-21T07:00:00.000Z",
        "reason": "manual",
        "argv": ["paceline", "run"],
        "tool_version": "0.1.0",
        "suites": [
            {
                "suite": "collectives/example",
                "version": 1,
                "family": "collectives",
                "baseline": "native",
                "metrics": {"latency": 0.02},
                "claims": [],
            }
        ],
        "runner": {"name": "local-cpu"},
        "code": {"commit": "c0ffee", "dirty": False},
        "host_class": HOST,
    }
    return Run(**(facts | changes))


def measurement(
    run: Run,
    label: str,
    launch: int,
    drawn: Sequence[float],
    /,
    *,
    metric: str = "latency",
    params: Mapping[str, Any] | None = None,
    contract_id: str | None = None,
    **changes: Any,
) -> Measurement:
    """Return one legal measurement; no samples give one that failed."""
    point = {**POINT, **(params or {})}
    block = f"block-{point['size_bytes']}-{point['link']}-{point['ranks']}"
    family = changes.get("family", "collectives")
    spec = load_family(family).metric(metric)
    contract = contract_id or contracts.contract_id(family, spec)
    ok = bool(drawn)
    facts: dict[str, Any] = {
        "record_id": record_id(family, run.run_id, block, label, launch, metric),
        "run_id": run.run_id,
        "suite": "collectives/example",
        "suite_version": 1,
        "family": "collectives",
        "block": block,
        "case_id": f"case-{label}",
        "series_key": series_key(family, f"case-{label}", label, run.host_class, contract),
        "launch": launch,
        "params": point,
        "technique": label,
        "label": label,
        "role": "baseline" if label == "native" else "technique",
        "scale": {"nodes": 1, "ranks": point["ranks"]},
        "metric": MetricId(
            name=metric, unit=spec.unit, better=spec.better, statistic=spec.statistic, contract_id=contract
        ),
        "samples": list(drawn),
        "value": launch_statistic(drawn, spec.statistic) if ok else None,
        "n": len(drawn),
        "status": "ok" if ok else "crashed",
        "reason": None if ok else "rank 1 died",
        "correctness": {"passed": True} if ok else None,
    }
    return Measurement(**(facts | changes))


def launches(run: Run, label: str, values: Iterable[float], **options: Any) -> list[Measurement]:
    """Return one measurement a launch, each with three samples around its value."""
    return [measurement(run, label, i, [v * 0.99, v, v * 1.01], **options) for i, v in enumerate(values)]


def in_memory(run: Run, measurements: Iterable[Measurement]) -> RunRecord:
    """Return a record that was never written."""
    return RunRecord(
        path=Path(f"{run.run_id}.jsonl"), run=run, measurements=tuple(measurements), events=(), sealed=True
    )


def write(root: Path, run: Run, measurements: Iterable[Measurement]) -> Path:
    """Write and seal a record."""
    writer = RecordWriter(root, run)
    writer.write(*measurements)
    return writer.seal()


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the lines of a sealed record where it lies, as nobody should."""
    content = change(content_of(path))
    path.write_bytes(pack(content) if is_packed(path) else content)


def facts_of(run: Run, measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Return a record's lines as plain data, without a seal."""
    return [json.loads(dump_line(line)) for line in (run, *measurements)]


def forge(
    root: Path, lines: Iterable[bytes], name: str, *, folder: str = "2026/11", listed: bool = True
) -> Path:
    """Write lines, whatever they say, as a sealed record that fits the manifest: somebody's program can.

    Args:
        root: The store.
        lines: The lines without their ends.
        name: The run id that the file's name has.
        folder: Its year and month.
        listed: Enter it in the manifest.
    """
    content = b"".join(line + b"\n" for line in lines)
    seal = Event(kind="seal", at=utc(), data={"sha256": hashlib.sha256(content).hexdigest()})
    content += dump_line(seal).encode() + b"\n"
    path = root / folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if listed:
        add_to_manifest(root, path)
    return path


def unpack(path: Path) -> Path:
    """Give a sealed record the form in which earlier versions stored it."""
    plain = plain_form(path)
    plain.write_bytes(content_of(path))
    path.unlink()
    return plain


def simple(root: Path, **changes: Any) -> Path:
    """Write and seal a small record of two techniques."""
    run = make_run(**changes)
    return write(root, run, launches(run, "native", [1.0, 1.1]) + launches(run, "ring", [2.0, 2.1]))
