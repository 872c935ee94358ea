"""Problems with free-text answers, published ones and one's own, from files or from the hub.

Every row is checked, and what is wrong is told with file, line and key. Problems are named by a digest of their text,
so a draw depends on which problems there are and not on their order in a file.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.families.reasoning.core.planning.naming import PARTIAL
from paceline.families.reasoning.core.problems.fields import TextProblem
from paceline.families.reasoning.core.problems.formats import FORMATS, Format
from paceline.families.reasoning.core.problems.rows import refuse, rows

__all__ = ["FORMATS", "Format", "Problems", "TextProblem", "draw", "fingerprint", "read", "read_all"]

MAX_ERRORS = 10
"""Mistakes of one source that are told together."""
MAX_NAMED = 20
"""Rows left out that are named; all of them are counted."""


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


def read(
    format_name: str, source: str, *, config: str | None = None, split: str | None = None, seed: int = 0
) -> tuple[TextProblem, ...]:
    """Return all problems of a source, in its order.

    Args:
        format_name: One of ``FORMATS``.
        source: A file ending in .jsonl, .json, .csv or .parquet, a folder of such, or a data set of the hub as
            ``NAME@REVISION``.
        config: Parts of a folder or data set of the hub, as ``A,B``; None takes the format's.
        split: Its split; None takes ``test``, or else ``train``.
        seed: Of the order of choices.

    Raises:
        UserError: The source cannot be read, has no problem, one twice, or a malformed one.
        PrerequisiteError: ``datasets`` is needed and not installed.
    """
    return read_all(format_name, source, config=config, split=split, seed=seed).problems


def read_all(
    format_name: str | Format,
    source: str,
    *,
    config: str | None = None,
    split: str | None = None,
    seed: int = 0,
    allow_partial: bool = False,
) -> Problems:
    """Return all problems of a source, in its order, and which rows were left out.

    Args:
        format_name: One of ``FORMATS``, or how the rows of another table are understood.
        source: What ``read`` takes; with ``PARTIAL`` at its end unreadable rows are left out as by ``allow_partial``.
        config: Parts of a folder or data set of the hub, as ``A,B``; None takes the format's.
        split: Its split; None takes ``test``, or else ``train``.
        seed: Of the order of choices.
        allow_partial: Leave rows out that cannot be read, or are there twice, and name them.

    Raises:
        UserError: What ``read`` raises; with ``allow_partial`` not of single rows.
        PrerequisiteError: ``datasets`` is needed and not installed.
    """
    allow_partial = allow_partial or source.endswith(PARTIAL)
    source = source.removesuffix(PARTIAL)
    if isinstance(format_name, str) and format_name not in FORMATS:
        raise UserError(
            f"no format '{format_name}' of problems", expected=expected_one_of(format_name, FORMATS)
        )
    chosen = FORMATS[format_name] if isinstance(format_name, str) else format_name
    found: dict[int, TextProblem] = {}
    places: dict[int, str] = {}
    errors: list[UserError] = []
    skip = errors.append if allow_partial else refuse
    named = [one.strip() for one in (config or "").split(",") if one.strip()]
    for row in rows(source, configurations=named, usual=chosen.config, split=split, skip=skip):
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
            "there is no problem" + (f"; {number_of(len(errors), 'row')} cannot be read" if errors else ""),
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
            f"{number_of(count, 'problem')} asked for, and there are {len(left)}{of_levels}",
            expected=f"0 to {number_of(len(left), 'problem')}",
            fix="ask for fewer, or name more levels or another file",
        )
    rng = random.Random(seed)
    for place in range(count):
        # Fisher and Yates from the front: the first problems do not depend on how many are drawn. Only `random()` is
        # promised across versions of Python.
        other = place + int(rng.random() * (len(left) - place))
        left[place], left[other] = left[other], left[place]
    return left[:count]
