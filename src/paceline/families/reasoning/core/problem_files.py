"""Published problems with free-text answers: GSM8K, MATH-500, AIME and GPQA, from files or from the hub.

Every row is checked, and what is wrong is told with file, line and key. Problems are named by a digest of their text,
so a draw depends on which problems there are and not on their order in a file.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.families.reasoning.core.answer_text import Kind, last_boxed, number_text, read_number
from paceline.families.reasoning.core.naming import PARTIAL
from paceline.families.reasoning.core.problem_rows import Row, refuse, rows

MAX_ERRORS = 10
MAX_CHOICES = 10
"""Mistakes of one source that are told together."""
MAX_LEVEL = 5
MAX_AIME = 999
MAX_NAMED = 20
"""Rows left out that are named; all of them are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProblem:
    """One question in words, with its answer."""

    key: int
    """Digest of the question, and of its choices in no order: equal in every file that has the problem."""
    level: int
    """Difficulty from 1 to 5 where the data set states one, else 0."""
    question: str
    """With the choices, where there are some."""
    answer: str
    """The truth: a number, a formula, or the letter of a choice."""
    kind: Kind
    choices: str = ""
    """The letters of its choices, where there are some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """What a source gave."""

    problems: tuple[TextProblem, ...]
    left_out: tuple[str, ...]
    """Of each row that could not be read, its place and what is wrong with it."""

    def facts(self) -> dict[str, object]:
        """Return how many rows were left out and the first of them, for the record; nothing where none was."""
        if not self.left_out:
            return {}
        return {"problems_left_out": len(self.left_out), "rows_left_out": list(self.left_out[:MAX_NAMED])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the rows of a data set are understood."""

    understand: Callable[[Row, int], TextProblem]
    """Of a row and the seed of choices' order."""
    config: str | None = None
    """Part of the data set of the hub that is read unless another one is named."""


def read(
    format_name: str, source: str, *, config: str | None = None, split: str | None = None, seed: int = 0
) -> tuple[TextProblem, ...]:
    """Return all problems of a source, in its order.

    Args:
        format_name: One of ``FORMATS``.
        source: A file ending in .jsonl, .json, .csv or .parquet, or a data set of the hub as ``NAME@REVISION``.
        config: Part of a data set of the hub; None takes the format's.
        split: Its split; None takes ``test``, or else ``train``.
        seed: Of the order of choices.

    Raises:
        UserError: The source cannot be read, has no problem, one twice, or a malformed one.
        PrerequisiteError: ``datasets`` is needed and not installed.
    """
    return read_all(format_name, source, config=config, split=split, seed=seed).problems


def read_all(
    format_name: str,
    source: str,
    *,
    config: str | None = None,
    split: str | None = None,
    seed: int = 0,
    allow_partial: bool = False,
) -> Problems:
    """Return all problems of a source, in its order, and which rows were left out.

    Args:
        format_name: One of ``FORMATS``.
        source: What ``read`` takes; with ``PARTIAL`` at its end unreadable rows are left out as by ``allow_partial``.
        config: Part of a data set of the hub; None takes the format's.
        split: Its split; None takes ``test``, or else ``train``.
        seed: Of the order of choices.
        allow_partial: Leave rows out that cannot be read, or are there twice, and name them.

    Raises:
        UserError: What ``read`` raises; with ``allow_partial`` not of single rows.
        PrerequisiteError: ``datasets`` is needed and not installed.
    """
    allow_partial = allow_partial or source.endswith(PARTIAL)
    source = source.removesuffix(PARTIAL)
    if format_name not in FORMATS:
        raise UserError(
            f"no format '{format_name}' of problems", expected=expected_one_of(format_name, FORMATS)
        )
    chosen = FORMATS[format_name]
    found: dict[int, TextProblem] = {}
    places: dict[int, str] = {}
    errors: list[UserError] = []
    skip = errors.append if allow_partial else refuse
    for row in rows(source, config=config or chosen.config, split=split, skip=skip):
        try:
            problem = chosen.understand(row, seed)
            if problem.key in found:
                raise UserError(
                    "the problem is there twice",
                    where=row.where,
                    expected=f"each problem once; {places[problem.key]} has it",
                    fix="remove one of the two",
                )
            found[problem.key], places[problem.key] = problem, row.where
        except UserError as error:
            errors.append(error)
            if len(errors) == MAX_ERRORS and not allow_partial:
                break
    if errors and not allow_partial:
        raise errors[0] if len(errors) == 1 else UserErrors(errors)
    if not found:
        raise UserError(
            "there is no problem" + (f"; {len(errors)} rows cannot be read" if errors else ""),
            where=source,
            expected="one row at least",
            fix="name another file",
        )
    left_out = tuple(f"{error.where}: {error.what}" for error in errors)
    return Problems(problems=tuple(found.values()), left_out=left_out)


def fingerprint(problems: Iterable[TextProblem]) -> str:
    """Return the SHA-256 of problems with their answers, in their order."""
    digest = hashlib.sha256()
    for one in problems:
        digest.update(json.dumps([one.key, one.level, one.question, one.answer, one.kind]).encode() + b"\n")
    return digest.hexdigest()


def draw(
    problems: Sequence[TextProblem], seed: int, count: int, *, levels: Sequence[int] | None = None
) -> list[TextProblem]:
    """Return distinct problems; fewer of the same seed are the beginning of more, whatever the problems' order.

    Args:
        problems: To draw from.
        seed: Of the draw.
        count: Of the problems drawn.
        levels: Those that may be drawn; None draws from all.

    Raises:
        UserError: There are not so many.
    """
    # By key first: a file in another order has the same draw.
    left = sorted((p for p in problems if levels is None or p.level in levels), key=lambda one: one.key)
    if not 0 <= count <= len(left):
        of_levels = "" if levels is None else f" of the levels {', '.join(map(str, levels))}"
        raise UserError(
            f"{count} problems asked for, and there are {len(left)}{of_levels}",
            expected=f"0 to {len(left)} problems",
            fix="ask for fewer, or name more levels or another file",
        )
    rng = random.Random(seed)
    for place in range(count):
        # Fisher and Yates from the front: the first problems do not depend on how many are drawn. Only `random()` is
        # promised across versions of Python.
        other = place + int(rng.random() * (len(left) - place))
        left[place], left[other] = left[other], left[place]
    return left[:count]


def _gsm8k(row: Row, seed: int) -> TextProblem:
    question, answer = _text(row, "question"), _text(row, "answer")
    value = read_number(answer.rpartition("####")[2]) if "####" in answer else None
    if value is None:
        raise _wrong(row, "answer", "it does not end in a number", "'…\\n#### 42'")
    return _problem(question, number_text(value), "number")


def _math(row: Row, seed: int) -> TextProblem:
    level = _level(row)
    return _problem(_text(row, "problem"), _answer_or_box(row), "math", level=level)


def _level(row: Row) -> int:
    """Return the stated difficulty; 0 where the row states none, as ``Level ?`` does."""
    value = None if _name(row, "level") is None else _value(row, "level")
    if value is None or re.fullmatch(r"(?i:level)?\s*(?:\?|nan|none|unknown)?\s*", str(value), re.IGNORECASE):
        return 0
    stated = re.fullmatch(r"(?:Level )?([0-9]+)(?:\.0)?", str(value))
    level = int(stated[1]) if stated else 0
    if not 1 <= level <= MAX_LEVEL:
        raise _wrong(row, "level", f"it is {value!r}", f"1 to {MAX_LEVEL}")
    return level


def _aime(row: Row, seed: int) -> TextProblem:
    answer = _answer_or_box(row)
    value = read_number(last_boxed(answer) or answer)
    if value is None or value.denominator != 1 or not 0 <= value <= MAX_AIME:
        raise _wrong(row, "answer", f"it is '{answer}'", f"a whole number from 0 to {MAX_AIME}")
    return _problem(_text(row, "problem", "question"), number_text(value), "number")


def _gpqa(row: Row, seed: int) -> TextProblem:
    question = _text(row, "Question")
    wrong = [f"Incorrect Answer {number}" for number in range(1, MAX_CHOICES)]
    # Three at least, and as many more as the row has.
    given = wrong[:3] + [
        n for n in wrong[3:] if (name := _name(row, n)) and row.values[name] not in (None, "")
    ]
    names = ("Correct Answer", *given)
    choices = [_text(row, name) for name in names]
    for name, choice in zip(names[1:], choices[1:], strict=True):
        if choice == choices[0]:
            raise _wrong(row, name, "it is the right answer too", "a wrong answer")
    key = _key("\n".join([question, *sorted(choices)]))
    # By digests of seed and problem: the right one is first in the file, and must be at no place more often.
    order = sorted(range(len(choices)), key=lambda place: _digest(f"{seed}/{key}/{choices[place]}/{place}"))
    letters = ascii_uppercase[: len(choices)]
    lines = (f"{letter}) {choices[place]}" for letter, place in zip(letters, order, strict=True))
    text = "\n".join([question, "", *lines])
    return TextProblem(
        key=key, level=0, question=text, answer=letters[order.index(0)], kind="choice", choices=letters
    )


FORMATS: dict[str, Format] = {
    "gsm8k": Format(understand=_gsm8k, config="main"),
    "math-500": Format(understand=_math),
    "aime": Format(understand=_aime),
    "gpqa": Format(understand=_gpqa, config="gpqa_diamond"),
}
"""By name: what the published data sets of this name look like."""


def _problem(question: str, answer: str, kind: Kind, *, level: int = 0) -> TextProblem:
    return TextProblem(key=_key(question), level=level, question=question, answer=answer, kind=kind)


def _answer_or_box(row: Row) -> str:
    r"""Return the stated answer, or what is in the last box of the solution where the data set has no answer."""
    if _name(row, "answer") is None and _name(row, "solution") is not None:
        boxed = last_boxed(_text(row, "solution"))
        if not boxed:
            raise _wrong(row, "solution", "it has no box", r"'… \boxed{42}', or a field 'answer'")
        return boxed
    value = _value(row, "answer")
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if whole and not isinstance(value, bool) else _text(row, "answer")


def _text(row: Row, *names: str) -> str:
    """Return the text of the first of these fields that a row has, without white space around it."""
    value, name = _value(row, *names), _name(row, *names)
    if not isinstance(value, str):
        is_nan = isinstance(value, float) and math.isnan(value)
        raise _wrong(row, str(name), f"it is {'NaN' if is_nan else type(value).__name__}", "text")
    if not value.strip():
        raise _wrong(row, str(name), "it is empty", "text")
    return value.strip()


def _value(row: Row, *names: str) -> Any:
    name = _name(row, *names)
    if name is None:
        have = ", ".join(sorted(row.values)) or "none"
        raise _wrong(
            row, names[0], "the field is missing", f"a field {' or '.join(names)}; there are: {have}"
        )
    return row.values[name]


def _name(row: Row, *names: str) -> str | None:
    """Return the field of one of these names as the row spells it, whatever its case."""
    spelled = {name.casefold().strip(): name for name in row.values}
    return next((spelled[name.casefold()] for name in names if name.casefold() in spelled), None)


def _wrong(row: Row, key: str, what: str, expected: str) -> UserError:
    return UserError(
        what,
        where=f"{row.where}:{key}",
        expected=expected,
        fix=f"correct the row, name the format that the file has, or end the problems' name in '{PARTIAL.strip()}' to "
        "leave such rows out and count them",
    )


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _key(text: str) -> int:
    # White space aside, which files differ in; 63 bits, so that it fits a signed number.
    return int.from_bytes(_digest(" ".join(text.split()))) >> 1
