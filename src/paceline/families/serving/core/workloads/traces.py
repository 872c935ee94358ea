"""Request traces of other people: Mooncake, Alibaba Bailian, Azure's LLM inference traces, BurstGPT. Free of torch.

They tell when requests came and how long they were, and Mooncake's and Bailian's which blocks of tokens they share;
never what was said. So prompts are drawn from a seed, equal tokens for equal blocks. A request that lacks what others
tell is left out and counted; a mistake is told with its file and line. Files may be packed with gzip.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.workloads.text_files import read_packed_text

MOONCAKE, BAILIAN, AZURE, BURSTGPT = "mooncake", "bailian", "azure", "burstgpt"
SHAREGPT = "sharegpt"
"""Conversations with their words and without instants, which ``conversations`` reads."""
FORMATS = (MOONCAKE, BAILIAN, AZURE, BURSTGPT, SHAREGPT)
MOONCAKE_BLOCK = 512
BLOCKS = {MOONCAKE: MOONCAKE_BLOCK, BAILIAN: 16}
"""Tokens of a block of ``hash_ids``, as the published traces have them; the last one may be shorter."""
PER_S = {MOONCAKE: 1000.0, BAILIAN: 1.0}
"""What a second is in timestamps."""
COLUMNS = {
    AZURE: ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    BURSTGPT: ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"),
}
TIMED = {
    AZURE: ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    BURSTGPT: ("Timestamp", "Request tokens", "Response tokens"),
}
"""Columns of instants, prompts and answers."""


NOTES = {
    "empty_prompt": "left out: no token of a prompt",
    "empty_answer": "left out: a prompt, and no token of an answer",
    "out_of_order": "came before the request above it; requests were sorted by their instants",
    "without_blocks": "tell no blocks where others do, and so share nothing",
    "without_offset": "have no offset from UTC where others do, and were taken as UTC",
    "total_differs": "the total is not the sum of prompt and answer; the total was not used",
}
"""What may be unusual about a trace's requests, and what was made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One request of a trace."""

    at_s: float
    """Behind the first request."""
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """What the prompt's blocks hold; equal ones mean equal beginnings. Empty where nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A whole trace."""

    requests: tuple[Traced, ...]
    """By their instants."""
    sha256: str
    """Of the file."""
    left_out: int
    """Requests without a prompt or without an answer (failed ones, in BurstGPT), or that lack a field."""
    block: int = MOONCAKE_BLOCK
    """Tokens of a block."""
    missing: dict[str, int] = field(default_factory=dict)
    """Field → requests that were left out because they lack it."""
    notes: dict[str, int] = field(default_factory=dict)
    """Key of ``NOTES`` → how many requests it is true of."""


def format_of(told: str) -> tuple[str, int]:
    """Read ``FORMAT`` or ``FORMAT/BLOCK``: a format's name, and the tokens of a block if they are not the usual ones.

    Raises:
        ValueError: There is no such format, or it has no blocks of such a size.
    """
    form, slash, size = told.partition("/")
    if form not in FORMATS:
        raise ValueError(f"'{told}' is no format of traces; expected one of {', '.join(FORMATS)}")
    if not slash:
        return form, BLOCKS.get(form, MOONCAKE_BLOCK)
    if form not in BLOCKS or not size.isascii() or not size.isdigit() or int(size) < 1:
        raise ValueError(
            f"'{told}' names no blocks; expected {' or '.join(BLOCKS)} and tokens, such as mooncake/64"
        )
    return form, int(size)


def wrong_format(told: str) -> str | None:
    """Say what is wrong with the name of a format; None where nothing is."""
    try:
        format_of(told)
    except ValueError as error:
        return str(error)
    return None


def wrong_path(path: str) -> str | None:
    """Say what is wrong with the name of a trace; None where nothing is."""
    if Path(path).is_absolute():
        return None
    return f"trace '{path}': a file is named by its absolute path, jobs run in folders of their own"


def read_trace(path: Path, form: str) -> Trace:
    """Read a trace.

    Args:
        path: A text file, or one that gzip has packed.
        form: ``FORMAT`` or ``FORMAT/BLOCK``.

    Raises:
        UserError: There is no such file, or a line is not what the format says.
    """
    kind, block = format_of(form)
    if kind == SHAREGPT:
        raise UserError(
            "conversations are no trace: they have words, and no instants",
            where=str(path),
            fix="workload: trace with trace_format: sharegpt and a tokenizer, or conversation_workload in Python",
        )
    text, digest = read_packed_text(path, "the trace")
    notes: Counter[str] = Counter()
    rows = list(_lines(path, text, kind, block) if kind in BLOCKS else _table(path, text, kind, notes))
    if not rows:
        raise UserError("the trace has no requests", where=str(path), expected=f"lines of the format {kind}")
    missing = dict(sorted(Counter(r for r in rows if isinstance(r, str)).items()))
    told = [r for r in rows if isinstance(r, Traced)]
    kept = [r for r in told if r.prompt_tokens > 0 and r.output_tokens > 0]
    notes["empty_prompt"] = sum(r.prompt_tokens == 0 for r in told)
    notes["empty_answer"] = sum(r.prompt_tokens > 0 and r.output_tokens == 0 for r in told)
    notes["out_of_order"] = sum(b.at_s < a.at_s for a, b in itertools.pairwise(kept))
    if any(r.blocks for r in kept):
        notes["without_blocks"] = sum(not r.blocks for r in kept)
    kept.sort(key=lambda r: r.at_s)
    if not kept:
        lacks = "".join(f"; {number} lack {name}" for name, number in missing.items())
        raise UserError(f"no request of the trace has a prompt and an answer{lacks}", where=str(path))
    first = kept[0].at_s
    requests = tuple(replace(r, at_s=r.at_s - first) for r in kept)
    return Trace(
        requests=requests,
        sha256=digest,
        left_out=len(rows) - len(kept),
        block=block,
        missing=missing,
        notes={name: number for name, number in sorted(notes.items()) if number},
    )


def _lines(path: Path, text: str, kind: str, size: int) -> Iterator[Traced | str]:
    """Read one JSON object a line; yield a field's name where a request lacks it."""
    unit = "ms" if PER_S[kind] == 1000.0 else "s"
    expected = f'{{"timestamp": {unit}, "input_length": n, "output_length": n, "hash_ids": [n, …]}}'
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        where = f"{path}:{line}"
        try:
            told = json.loads(row, object_pairs_hook=_once)
        except ValueError as error:
            raise UserError(f"not JSON: {error}", where=where, expected=expected) from error
        if not isinstance(told, dict):
            raise UserError("not a JSON object", where=where, expected=expected)
        lacking = next(
            (k for k in ("timestamp", "input_length", "output_length") if told.get(k) is None), None
        )
        if lacking is not None:
            yield lacking
            continue
        blocks = [] if told.get("hash_ids") is None else told["hash_ids"]
        if not isinstance(blocks, list) or any(type(b) is not int for b in blocks):
            raise UserError("hash_ids is no list of whole numbers", where=where, expected=expected)
        length = _count(told, "input_length", where, expected)
        if blocks and len(blocks) != math.ceil(length / size):
            raise UserError(
                f"{len(blocks)} hash_ids for {number_of(length, 'token')}",
                where=where,
                expected=f"one for each {number_of(size, 'token')}: {math.ceil(length / size)}",
                fix=f"trace_format: {kind}/TOKENS, if its blocks have another size",
            )
        yield Traced(
            at_s=_number(told, "timestamp", where, expected) / PER_S[kind],
            prompt_tokens=length,
            output_tokens=_count(told, "output_length", where, expected),
            blocks=tuple(blocks),
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its fields, none of which may stand there twice: the last one would count, silently."""
    told = dict(pairs)
    if len(told) < len(pairs):
        twice = next(name for name, number in Counter(name for name, _ in pairs).items() if number > 1)
        raise ValueError(f"the field '{twice}' stands there twice")
    return told


def _table(path: Path, text: str, form: str, notes: Counter[str]) -> Iterator[Traced | str]:
    """Read lines of comma-separated columns below a heading; yield a column's name where a request lacks it."""
    columns = COLUMNS[form]
    expected = ",".join(columns)
    rows = csv.DictReader(text.splitlines())
    heading = [name.strip() for name in rows.fieldnames or []]
    missing = [name for name in columns if name not in heading]
    if missing:
        raise UserError(f"the heading lacks {', '.join(missing)}", where=f"{path}:1", expected=expected)
    twice = [name for name in columns if heading.count(name) > 1]
    if twice:
        raise UserError(f"the heading has {', '.join(twice)} twice", where=f"{path}:1", expected=expected)
    rows.fieldnames = heading
    zones: Counter[bool] = Counter()
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise UserError("another number of columns than the heading", where=where, expected=expected)
        moment, prompt, output = TIMED[form]
        lacking = next((name for name in (moment, prompt, output) if not row[name].strip()), None)
        if lacking is not None:
            yield lacking
            continue
        at_s = _instant(row[moment], where, zones) if form == AZURE else _number(row, moment, where, expected)
        if form == BURSTGPT and row["Total tokens"].strip():
            parts = _count(row, prompt, where, expected) + _count(row, output, where, expected)
            notes["total_differs"] += not _is(row["Total tokens"], parts)
        yield Traced(
            at_s=at_s,
            prompt_tokens=_count(row, prompt, where, expected),
            output_tokens=_count(row, output, where, expected),
        )
    if zones[True]:
        notes["without_offset"] = zones[False]


def _is(told: str, number: int) -> bool:
    """Return whether a cell that nothing hangs on is a number."""
    try:
        return float(told) == number
    except ValueError:
        return False


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


def _instant(told: str, where: str, zones: Counter[bool]) -> float:
    """Return seconds of a date and time; Azure writes seven digits of a second, and later years an offset.

    Args:
        told: The date and time.
        where: Of it.
        zones: Counts whether instants have an offset; those that have none are taken as UTC.
    """
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
    zones[offset is not None] += 1
    return since.total_seconds() - (offset.total_seconds() if offset else 0.0) + float(f"0{dot}{digits}")


def scaled(tokens: int, scale: float) -> int:
    """Return a length after scaling: the nearest whole number, one at least."""
    return max(1, round(tokens * scale))


def calls_of(
    requests: Sequence[Traced],
    vocabulary: int,
    *,
    seed: int,
    scale: float = 1.0,
    context: int | None,
    block: int = MOONCAKE_BLOCK,
) -> list[Call]:
    """Return calls with drawn prompts, at the trace's own instants.

    Args:
        requests: Of the trace.
        vocabulary: Tokens that the model knows.
        seed: Same seed, same tokens.
        scale: Factor on all lengths, for models that know less than the trace's did.
        context: Most tokens of a call that the model knows; None where nobody knows.
        block: Tokens of a block, before they are scaled.

    Raises:
        UserError: A call is longer than the model knows.
    """
    calls = []
    for number, request in enumerate(requests):
        prompt_tokens = scaled(request.prompt_tokens, scale)
        output_tokens = scaled(request.output_tokens, scale)
        if context is not None and prompt_tokens + output_tokens > context:
            raise UserError(
                f"request {number} of the trace has {number_of(prompt_tokens + output_tokens, 'token')}",
                expected=f"at most {context}, which the model knows",
                fix=f"trace_scale: {scale * context / (prompt_tokens + output_tokens + 2):.3g}",
            )
        prompt = _shared_tokens(request.blocks, prompt_tokens, block * scale, vocabulary, seed)
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


def _shared_tokens(
    blocks: Sequence[int], prompt_tokens: int, size: float, vocabulary: int, seed: int
) -> list[int]:
    """Return what a prompt's blocks hold: equal tokens for equal blocks.

    Args:
        blocks: Of the prompt.
        prompt_tokens: Of the prompt, after scaling.
        size: Tokens of a block after scaling, whole or not: a token is of the block in which it begins.
        vocabulary: Tokens that the model knows.
        seed: Same seed, same tokens.
    """
    prompt: list[int] = []
    for place, block in enumerate(blocks):
        held = min(math.ceil((place + 1) * size), prompt_tokens) - len(prompt)
        drawn = random.Random(f"{seed}:{block}")
        prompt += [drawn.randrange(FIRST_TOKEN, vocabulary) for _ in range(held)]
    return prompt
