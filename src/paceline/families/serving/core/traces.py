"""Request traces of other people in their own formats: Mooncake, Azure's LLM inference traces, BurstGPT. Free of torch.

They tell when requests came and how long they were, and Mooncake's which blocks of 512 tokens they share; never what
was said. So prompts are drawn from a seed, equal tokens for equal blocks. A mistake is told with its file and line.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import FIRST_TOKEN

MOONCAKE, AZURE, BURSTGPT = "mooncake", "azure", "burstgpt"
FORMATS = (MOONCAKE, AZURE, BURSTGPT)
MOONCAKE_BLOCK = 512
"""Tokens of a block of ``hash_ids`` (Mooncake's published traces; the last one may be shorter)."""
COLUMNS = {
    AZURE: ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    BURSTGPT: ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One request of a trace."""

    at_s: float
    """Behind the first request."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """What the prompt's blocks of 512 tokens hold; equal ones mean equal beginnings. Empty where nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole trace."""

    requests: tuple[Traced, ...]
    """By their instants."""
    sha256: str
    """Of the file."""
    left_out: int
    """Requests without a prompt or without an answer (failed ones, in BurstGPT)."""


def wrong_path(path: str) -> str | None:
    """Say what is wrong with the name of a trace; None where nothing is."""
    if Path(path).is_absolute():
        return None
    return f"trace '{path}': a file is named by its absolute path, jobs run in folders of their own"


def read_trace(path: Path, form: str) -> Trace:
    """Read a trace.

    Raises:
        UserError: There is no such file, or a line is not what the format says.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read the trace: {error}", where=str(path), expected="a text file; name its absolute path"
        ) from error
    rows = list(_mooncake(path, text) if form == MOONCAKE else _table(path, text, form))
    if not rows:
        raise UserError("the trace has no requests", where=str(path), expected=f"lines of the format {form}")
    # Calls are numbered by their instants, which published files do not always keep in order.
    kept = sorted((r for r in rows if r.prompt_tokens > 0 and r.output_tokens > 0), key=lambda r: r.at_s)
    if not kept:
        raise UserError("no request of the trace has a prompt and an answer", where=str(path))
    first = kept[0].at_s
    requests = tuple(
        Traced(
            at_s=r.at_s - first, prompt_tokens=r.prompt_tokens, output_tokens=r.output_tokens, blocks=r.blocks
        )
        for r in kept
    )
    return Trace(requests=requests, sha256=hashlib.sha256(data).hexdigest(), left_out=len(rows) - len(kept))


def _mooncake(path: Path, text: str) -> Iterator[Traced]:
    """Read one JSON object a line; instants are milliseconds."""
    expected = '{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [n, …]}'
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        where = f"{path}:{line}"
        try:
            told = json.loads(row)
        except ValueError as error:
            raise UserError(f"not JSON: {error}", where=where, expected=expected) from error
        if not isinstance(told, dict):
            raise UserError("not a JSON object", where=where, expected=expected)
        blocks = told.get("hash_ids", [])
        if not isinstance(blocks, list) or any(type(b) is not int for b in blocks):
            raise UserError("hash_ids is no list of whole numbers", where=where, expected=expected)
        length = _count(told, "input_length", where, expected)
        if blocks and len(blocks) != math.ceil(length / MOONCAKE_BLOCK):
            raise UserError(
                f"{len(blocks)} hash_ids for {length} tokens",
                where=where,
                expected=f"one for each {MOONCAKE_BLOCK} tokens: {math.ceil(length / MOONCAKE_BLOCK)}",
            )
        yield Traced(
            at_s=_number(told, "timestamp", where, expected) / 1000.0,
            prompt_tokens=length,
            output_tokens=_count(told, "output_length", where, expected),
            blocks=tuple(blocks),
        )


def _table(path: Path, text: str, form: str) -> Iterator[Traced]:
    """Read lines of comma-separated columns below a heading."""
    columns = COLUMNS[form]
    expected = ",".join(columns)
    rows = csv.DictReader(text.splitlines())
    heading = [name.strip() for name in rows.fieldnames or []]
    missing = [name for name in columns if name not in heading]
    if missing:
        raise UserError(f"the heading lacks {', '.join(missing)}", where=f"{path}:1", expected=expected)
    rows.fieldnames = heading
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise UserError("another number of columns than the heading", where=where, expected=expected)
        if form == AZURE:
            at_s = _instant(row["TIMESTAMP"], where)
            prompt, output = "ContextTokens", "GeneratedTokens"
        else:
            at_s = _number(row, "Timestamp", where, expected)
            prompt, output = "Request tokens", "Response tokens"
        yield Traced(
            at_s=at_s,
            prompt_tokens=_count(row, prompt, where, expected),
            output_tokens=_count(row, output, where, expected),
        )


def _number(row: dict[str, Any], name: str, where: str, expected: str) -> float:
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0 or isinstance(row.get(name), bool):
        raise UserError(f"{name} is {row.get(name)!r}, no number from 0 on", where=where, expected=expected)
    return value


def _count(row: dict[str, Any], name: str, where: str, expected: str) -> int:
    value = _number(row, name, where, expected)
    if value != int(value):
        raise UserError(f"{name} is {row[name]!r}, no whole number", where=where, expected=expected)
    return int(value)


def _instant(told: str, where: str) -> float:
    """Return seconds of a date and time; Azure writes seven digits of a second, and later years an offset."""
    text = told.strip()
    # The fraction is read apart: a datetime holds microseconds, and Azure writes seven digits.
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError as error:
        raise UserError(
            f"TIMESTAMP is {told!r}", where=where, expected="2023-11-16 18:15:46.6805900"
        ) from error
    since = moment.replace(tzinfo=None) - datetime(2000, 1, 1)  # differences alone count
    offset = moment.utcoffset()
    return since.total_seconds() - (offset.total_seconds() if offset else 0.0) + float(f"0{dot}{digits}")


def calls_of(
    requests: Sequence[Traced], vocabulary: int, *, seed: int, scale: float = 1.0, context: int
) -> list[Call]:
    """Return calls with drawn prompts, at the trace's own instants.

    Args:
        requests: Of the trace.
        vocabulary: Tokens that the model knows.
        seed: Same seed, same tokens.
        scale: Factor on all lengths, for models that know less than the trace's did.
        context: Most tokens of a call that the model knows.

    Raises:
        UserError: A call is longer than the model knows.
    """
    # Blocks shrink with the lengths, so that the same share of a prompt is shared.
    size = max(1, round(MOONCAKE_BLOCK * scale))
    calls = []
    for number, request in enumerate(requests):
        prompt_tokens = max(1, round(request.prompt_tokens * scale))
        output_tokens = max(1, round(request.output_tokens * scale))
        if prompt_tokens + output_tokens > context:
            raise UserError(
                f"request {number} of the trace has {prompt_tokens + output_tokens} tokens",
                expected=f"at most {context}, which the model knows",
                fix=f"trace_scale: {scale * context / (prompt_tokens + output_tokens + 2):.3g}",
            )
        prompt: list[int] = []
        for block in request.blocks:
            # Seeded by the block: wherever it occurs its tokens are the same, and a prefix cache finds it.
            drawn = random.Random(f"{seed}:{block}")
            prompt += [drawn.randrange(FIRST_TOKEN, vocabulary) for _ in range(size)]
        own = random.Random(f"{seed}:call {number}")
        prompt += [own.randrange(FIRST_TOKEN, vocabulary) for _ in range(prompt_tokens - len(prompt))]
        calls.append(
            Call(
                number=number,
                prompt=tuple(prompt[:prompt_tokens]),
                output_tokens=output_tokens,
                at_s=request.at_s,
            )
        )
    return calls
