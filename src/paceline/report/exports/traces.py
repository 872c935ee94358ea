"""Recorded traces as one long table: a row for each trace, with its question, tokens, probabilities, times, answer."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError
from paceline.families.reasoning.core.recordings.archive import Archive
from paceline.families.reasoning.core.recordings.trace_files import MODEL, TraceFile, read
from paceline.records.store.folder import RunRecord

ARTIFACT = "traces"
ROWS_AT_ONCE = 5000


def parquet(records: Sequence[RunRecord]) -> bytes:
    """Return the table of all traces of runs as Parquet; files that are not here any more are left out.

    Raises:
        UserError: The runs have none here, or a file has changed or cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("run_id", "suite", "model", "role")),
            *((name, pa.int32()) for name in ("launch", "question", "index", "level")),
            *((name, pa.string()) for name in ("problem", "truth", "text", "answer")),
            ("right", pa.bool_()),
            ("key", pa.list_(pa.int64())),
            *((name, pa.list_(pa.int32())) for name in ("before", "tokens")),
            *((name, pa.list_(pa.float64())) for name in ("logprobs", "entropies")),
            *((name, pa.float64()) for name in ("temperature", "begun_s", "latest_s")),
            ("ended", pa.bool_()),
        ]
    )
    target = io.BytesIO()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for path, (record, digest) in _files(records).items():
            rows = ({"run_id": record.run_id, **row} for row in _rows(_checked(path, digest)))
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    return target.getvalue()


def _files(records: Sequence[RunRecord]) -> dict[Path, tuple[RunRecord, str]]:
    """Return the files that are there, each with its record and the SHA-256 that this names.

    Raises:
        UserError: None is there, or a record names one elsewhere.
    """
    found: dict[Path, tuple[RunRecord, str]] = {}
    for record in records:
        for m in record.measurements:
            if m.artifacts is None or ARTIFACT not in m.artifacts:
                continue
            place = (record.path.parent / m.artifacts[ARTIFACT]).resolve()
            if record.path.parent.resolve() / record.run_id != place.parent:
                raise UserError(
                    "the record names a file outside of its own folder",
                    where=str(record.path),
                    expected=f"{record.run_id}/NAME",
                    fix=f"paceline store retract {record.run_id} --reason 'names a file elsewhere'",
                )
            found[place] = (record, str((m.accounting or {}).get("kept_traces_sha256")))
    there = {place: whose for place, whose in found.items() if place.is_file()}
    if not there:
        raise UserError(
            "the runs keep no traces here",
            where=", ".join(r.run_id for r in records),
            expected="a run of the reasoning family on this machine; merged records come without their traces",
            fix="paceline reproduce RUN, or name another run",
        )
    return there


def _checked(path: Path, digest: str) -> TraceFile:
    """Read a file that must be the one that was written.

    Raises:
        UserError: It has changed, or cannot be read.
    """
    file = read(path)
    if file.sha256 != digest:
        raise UserError(
            "the traces are not those that the record names",
            where=str(path),
            expected=f"SHA-256 {digest}",
            fix="take the file from where the run was made",
        )
    return file


def _rows(file: TraceFile) -> Iterator[dict[str, Any]]:
    header = file.header
    prompts = {tuple(q["prompt"]): number for number, q in enumerate(header["questions"])}
    for role, archive in file.archives.items():
        shared = {
            "suite": header["suite"],
            "launch": header["launch"],
            "role": role,
            "model": archive.identity,
        }
        for row in _traces(archive, header, prompts, own=role == MODEL):
            yield shared | row


def _traces(
    archive: Archive, header: Mapping[str, Any], prompts: Mapping[tuple[int, ...], int], *, own: bool
) -> Iterator[dict[str, Any]]:
    vocabulary, temperature = header["vocabulary"], header["params"]["temperature"]
    for (before, key, drawn_at), line in archive.lines.items():
        number = key[1] if len(key) > 1 else prompts.get(before)
        question = {} if number is None else header["questions"][number]
        plain = own and len(key) == 3 and drawn_at == temperature and before == tuple(question["prompt"])
        index = key[2] if plain else None
        yield {
            "question": number,
            "index": index,
            "level": question.get("level"),
            "problem": question.get("question"),
            "truth": question.get("answer"),
            "text": _text(line.tokens, vocabulary),
            "answer": None if index is None else header["answers"][number][index],
            "right": None if index is None else header["right"][number][index],
            "key": key,
            "before": before,
            "tokens": line.tokens,
            "logprobs": line.logprobs,
            "entropies": line.entropies,
            "temperature": drawn_at,
            "begun_s": line.begun_s,
            "latest_s": line.latest_s,
            "ended": line.ended,
        }


def _text(tokens: Sequence[int], vocabulary: Mapping[str, Any] | None) -> str | None:
    """Return tokens as text; None of models whose tokenizer alone can tell."""
    if vocabulary is None:
        return None
    return str(vocabulary["between"]).join(vocabulary["symbols"][token] for token in tokens)
