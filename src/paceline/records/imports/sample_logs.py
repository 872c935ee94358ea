"""Per-sample logs of other harnesses: of each item, what it scored, whatever the harness calls it.

lm-evaluation-harness writes ``samples_TASK_DATE.jsonl`` (``--log_samples``), inspect_ai ``.eval`` archives or
``.json``, lighteval ``details_TASK_DATE.parquet`` (``--save-details``), and ``paceline evaluate`` ``samples.jsonl``.
A folder stands for the newest log of each task in it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paceline.base.errors import UserError

LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Scores of inspect_ai: correct, incorrect, partial, no answer."""
ZSTD = 93
LOCAL_HEADER = 30
EXPECTED = (
    "samples_*.jsonl of lm-evaluation-harness, a .eval or .json log of inspect_ai, details_*.parquet of lighteval, or "
    "samples.jsonl of paceline evaluate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One item under one metric, one sample of it."""

    item: str
    """Equal in every log of the same items."""
    metric: str
    variant: str
    """Filter of lm-evaluation-harness, scorer of inspect_ai, method of ``paceline evaluate``; else empty."""
    value: float
    fields: Mapping[str, Any]
    """What the log says of the item, for clusters."""
    sample: str = ""
    """Which of the item's samples: epoch of inspect_ai, number of the row that has the item's text elsewhere."""
    target: str = ""
    """What the log holds to be right, where an item's name does not say which question it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLog:
    """All of a log."""

    name: str
    tool: str
    scored: tuple[Scored, ...]


def read_log(name: str, *, partial: bool = False) -> SampleLog:
    """Return what a log holds; ``PATH#VARIANT`` keeps one filter, scorer or method of it.

    Args:
        name: A file or folder, and a variant.
        partial: Take a log of inspect_ai whose run did not end.

    Raises:
        UserError: It is no log, has no such variant or a sample twice, or its run did not end.
    """
    path, _, variant = (name, "", "") if Path(name).exists() else name.rpartition("#")
    paths = _files(Path(path or name))
    read = [_read(one, partial) for one in paths]
    tools = {tool for tool, _ in read}
    if len(tools) > 1:
        raise UserError(
            f"it has logs of {' and '.join(sorted(tools))}",
            where=name,
            fix="name one file, or a folder of one tool's",
        )
    scored = tuple(one for _, rows in read for one in rows if not variant or one.variant == variant)
    if not scored:
        known = sorted({one.variant for _, rows in read for one in rows})
        raise UserError(
            f"nothing in it is scored{f' under {variant!r}' if variant else ''}",
            where=name,
            expected=f"one of: {', '.join(known)}" if known else EXPECTED,
            fix=f"{path or name}#{known[0]}" if known else "write the log with its samples",
        )
    _refuse_twice(name, scored)
    return SampleLog(name=name, tool=tools.pop(), scored=scored)


def _refuse_twice(name: str, scored: Sequence[Scored]) -> None:
    """Refuse a log with one sample in two rows: a mean of both would be nobody's score.

    Raises:
        UserError: There is one.
    """
    seen: set[tuple[str, str, str, str]] = set()
    for one in scored:
        key = (one.item, one.metric, one.variant, one.sample)
        if key in seen:
            of = f", sample {one.sample}," if one.sample else ""
            raise UserError(
                f"item {one.item}{of} is there twice under {one.metric}",
                where=name,
                expected="each sample of an item once",
                fix="name the log of one run, as its tool wrote it",
            )
        seen.add(key)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found: dict[str, Path] = {}
    patterns = ("samples_*.jsonl", "*.eval", "details_*.parquet", "samples.jsonl", "*.json")
    for pattern in patterns:
        # Names end in dates that sort: of each task the newest is kept.
        for one in sorted(path.rglob(pattern)) if path.is_dir() else ():
            if pattern != "*.json" or _is_inspect(one):
                found[_task(one)] = one
        if found:
            return list(found.values())
    raise UserError(
        "there is no log", where=str(path), expected=EXPECTED, fix="name a file, or a folder that has one"
    )


def _task(path: Path) -> str:
    if path.name.startswith(("samples_", "details_")):
        return path.stem.rpartition("_")[0]
    if path.suffix in (".eval", ".json"):
        return path.stem.partition("_")[2].rpartition("_")[0]
    return str(path)


def _is_inspect(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"eval"' in file.read(4096)


def _read(path: Path, partial: bool) -> tuple[str, list[Scored]]:
    try:
        if path.suffix == ".parquet":
            return "lighteval", list(_lighteval(path))
        if path.suffix == ".eval":
            return "inspect_ai", [s for one in _archived(path, partial) for s in _inspected(one)]
        if path.suffix == ".json":
            log = json.loads(path.read_bytes())
            _refuse_unended(path, log.get("status"), partial)
            return "inspect_ai", [s for one in log["samples"] for s in _inspected(one)]
        rows = list(_lines(path))
        if rows and "method" in rows[0]:
            return "paceline", [one for row in rows for one in _own(row)]
        return "lm-evaluation-harness", [one for row in rows for one in _lm_eval(row, path)]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        pa.ArrowException,
        OSError,
    ) as error:
        raise UserError(
            f"it cannot be read as a log of samples: {type(error).__name__}: {error}",
            where=str(path),
            expected=EXPECTED,
            fix="write it again with its samples: --log_samples, --log-format eval, --save-details",
        ) from error


def _lines(path: Path) -> Iterator[Any]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"line {number} is no JSON, as of a log that was cut off: {error}"
                ) from error


def _refuse_unended(path: Path, status: str | None, partial: bool) -> None:
    """Refuse a log of inspect_ai whose run did not end.

    Raises:
        UserError: It did not, and parts are not asked for.
    """
    if status != "success" and not partial:
        raise UserError(
            f"the run that wrote it did not end: its status is {status or 'none, as after a kill'}",
            where=str(path),
            expected="a log with the status success",
            fix=f"inspect eval-retry {path}; or --allow-partial compares the items that are there",
        )


def _own(row: Mapping[str, Any]) -> Iterator[Scored]:
    if row["status"] == "answered":
        yield Scored(
            item=str(row["problem"]),
            metric="right",
            variant=row["method"],
            value=float(row["right"]),
            fields=row,
        )


def _lm_eval(row: Mapping[str, Any], path: Path) -> Iterator[Scored]:
    task = _task(path).removeprefix("samples_")
    # The hash says that it is the same item, whatever its place was.
    item = f"{task}/{row.get('doc_hash') or row['doc_id']}"
    doc = row["doc"] if isinstance(row["doc"], dict) else {}
    for metric in row["metrics"]:
        value = row.get(metric)
        if isinstance(value, bool | int | float) and math.isfinite(value):
            yield Scored(
                item=item,
                metric=metric,
                variant=str(row.get("filter", "")),
                value=float(value),
                fields={**doc, "task": task, "doc_id": row["doc_id"]},
                sample=str(row["doc_id"]),
                target="" if row.get("doc_hash") else json.dumps(row.get("target")),
            )


def _inspected(sample: Mapping[str, Any]) -> Iterator[Scored]:
    fields = {**(sample.get("metadata") or {}), "id": sample["id"]}
    for scorer, score in (sample.get("scores") or {}).items():
        given = score["value"]
        values = given if isinstance(given, dict) else {"": given}
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                metric = f"{scorer}/{name}" if name else scorer
                yield Scored(
                    item=str(sample["id"]),
                    metric=metric,
                    variant=scorer,
                    value=number,
                    fields=fields,
                    sample=str(sample.get("epoch", "")),
                    target=_right(sample),
                )


def _right(sample: Mapping[str, Any]) -> str:
    """Return an item's right answer: of a choice its text, since runs may put the choices into another order."""
    target, choices = sample.get("target"), sample.get("choices")
    if isinstance(target, str) and isinstance(choices, list) and len(target) == 1:
        place = ord(target) - ord("A")
        target = choices[place] if 0 <= place < len(choices) else target
    return "" if target in (None, "") else json.dumps(target)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return LETTERS.get(value)
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else None


def _archived(path: Path, partial: bool) -> Iterator[Mapping[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        # Written when the run ends; what a killed one leaves has samples and its journal alone.
        headers = [one for one in archive.infolist() if one.filename == "header.json"]
        status = json.loads(_entry(archive, path, headers[-1])).get("status") if headers else None
        _refuse_unended(path, status, partial)
        names = [one for one in archive.infolist() if one.filename.startswith("samples/")]
        for one in names:
            yield json.loads(_entry(archive, path, one))


def _entry(archive: zipfile.ZipFile, path: Path, one: zipfile.ZipInfo) -> bytes:
    return _zstd(path, one) if one.compress_type == ZSTD else archive.read(one)


def _zstd(path: Path, entry: zipfile.ZipInfo) -> bytes:
    """Return an entry that the standard library of this Python cannot decompress."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        header = file.read(LOCAL_HEADER)
        name_size, extra_size = struct.unpack("<HH", header[26:30])
        file.seek(entry.header_offset + LOCAL_HEADER + name_size + extra_size)
        data = file.read(entry.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


def _lighteval(path: Path) -> Iterator[Scored]:
    for place, row in enumerate(pq.read_table(path).to_pylist()):
        doc, found = row.get("doc") or {}, row.get("metric") or row.get("metrics") or {}
        task = doc.get("task_name") or _task(path).removeprefix("details_")
        text = doc.get("query") or row.get("full_prompt") or str(place)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        told = doc.get("specific")
        specific = told if isinstance(told, dict) else {}
        for metric, value in found.items():
            number = _number(value)
            if number is not None:
                yield Scored(
                    item=f"{task}/{digest}",
                    metric=metric,
                    variant="",
                    value=number,
                    fields={**specific, "task": task, "id": doc.get("id")},
                    sample=str(doc.get("id") or place),
                )


def variants(log: SampleLog, metric: str) -> Sequence[str]:
    """Return the variants of a log that have a metric, in their order."""
    return list(dict.fromkeys(one.variant for one in log.scored if one.metric == metric))


def metrics(log: SampleLog) -> Sequence[str]:
    """Return a log's metrics, in their order."""
    return list(dict.fromkeys(one.metric for one in log.scored))
