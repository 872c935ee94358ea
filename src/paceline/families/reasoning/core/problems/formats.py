"""How rows of published data sets are understood: each layout as its file has it, and tables of one's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase

from paceline.families.reasoning.core.answers.text import last_boxed, number_text, read_number
from paceline.families.reasoning.core.problems.fields import (
    TextProblem,
    digest,
    key_of,
    name_of,
    problem,
    text_of,
    value_of,
    wrong,
)
from paceline.families.reasoning.core.problems.rows import Row

MAX_CHOICES = 10
MAX_LEVEL = 5
MAX_AIME = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the rows of a data set are understood."""

    understand: Callable[[Row, int], TextProblem]
    """Of a row and the seed of choices' order."""
    config: str | None = None
    """Part of the data set of the hub that is read unless another one is named."""


def _gsm8k(row: Row, seed: int) -> TextProblem:
    question, answer = text_of(row, "question"), text_of(row, "answer")
    value = read_number(answer.rpartition("####")[2]) if "####" in answer else None
    if value is None:
        raise wrong(row, "answer", "it does not end in a number", "'…\\n#### 42'")
    return problem(question, number_text(value), "number")


def _math(row: Row, seed: int) -> TextProblem:
    level = _level(row)
    return problem(text_of(row, "problem", "question"), _answer_or_box(row), "math", level=level)


def _level(row: Row) -> int:
    """Return the stated difficulty; 0 where the row states none, as ``Level ?`` does."""
    value = None if name_of(row, "level") is None else value_of(row, "level")
    if value is None or re.fullmatch(r"(?i:level)?\s*(?:\?|nan|none|unknown)?\s*", str(value), re.IGNORECASE):
        return 0
    stated = re.fullmatch(r"(?:Level )?([0-9]+)(?:\.0)?", str(value))
    level = int(stated[1]) if stated else 0
    if not 1 <= level <= MAX_LEVEL:
        raise wrong(row, "level", f"it is {value!r}", f"1 to {MAX_LEVEL}")
    return level


def _aime(row: Row, seed: int) -> TextProblem:
    answer = _answer_or_box(row)
    value = read_number(last_boxed(answer) or answer)
    if value is None or value.denominator != 1 or not 0 <= value <= MAX_AIME:
        raise wrong(row, "answer", f"it is '{answer}'", f"a whole number from 0 to {MAX_AIME}")
    return problem(text_of(row, "problem", "question"), number_text(value), "number")


def _amc(row: Row, seed: int) -> TextProblem:
    answer = _answer_or_box(row)
    value = read_number(last_boxed(answer) or answer)
    if value is None:
        raise wrong(row, "answer", f"it is '{answer}'", "a number; the letter of a choice alone names none")
    return problem(text_of(row, "problem", "question"), number_text(value), "number")


def _svamp(row: Row, seed: int) -> TextProblem:
    body, question = text_of(row, "Body"), text_of(row, "Question")
    answer = _plain(value_of(row, "Answer"))
    value = read_number(answer)
    if value is None:
        raise wrong(row, "Answer", f"it is '{answer}'", "a number")
    # Some bodies end without a point.
    return problem(f"{body}{'' if body[-1] in '.!?' else '.'} {question}", number_text(value), "number")


def _olympiad(row: Row, seed: int) -> TextProblem:
    name = "final_answer" if name_of(row, "final_answer") else "answer"
    given = value_of(row, name)
    answers = [
        str(one).strip() for one in (given if isinstance(given, list) else [given]) if one not in (None, "")
    ]
    if not answers:
        raise wrong(row, name, "it is empty, as of a proof, which no answer decides", "a final answer")
    question = text_of(row, "question", "problem")
    pictures = [n for n in row.values if re.fullmatch(r"image(_\d+)?", n) and row.values[n] is not None]
    if "<image" in question or pictures:
        raise wrong(row, "question", "it has a picture, which no text holds", "a question in words alone")
    # Several questions share a text that stands before them, in a field of its own.
    context = row.values.get(name_of(row, "context") or "")
    asked = f"{context.strip()}\n\n{question}" if isinstance(context, str) and context.strip() else question
    return problem(asked, ", ".join(one.strip("$ ") for one in answers), "math")


def _plain(value: object) -> str:
    """Return a value as text; whole numbers that a table holds as 12.0 are 12."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole and isinstance(value, float) else str(value).strip()


def _gpqa(row: Row, seed: int) -> TextProblem:
    question = text_of(row, "Question")
    others = [f"Incorrect Answer {number}" for number in range(1, MAX_CHOICES)]
    # Three at least, and as many more as the row has.
    given = others[:3] + [
        n for n in others[3:] if (name := name_of(row, n)) and row.values[name] not in (None, "")
    ]
    names = ("Correct Answer", *given)
    choices = [text_of(row, name) for name in names]
    for name, choice in zip(names[1:], choices[1:], strict=True):
        if choice == choices[0]:
            raise wrong(row, name, "it is the right answer too", "a wrong answer")
    key = key_of("\n".join([question, *sorted(choices)]))
    # By digests of seed and problem: the right one is first in the file, and must be at no place more often.
    order = sorted(range(len(choices)), key=lambda place: digest(f"{seed}/{key}/{choices[place]}/{place}"))
    letters = ascii_uppercase[: len(choices)]
    lines = (f"{letter}) {choices[place]}" for letter, place in zip(letters, order, strict=True))
    text = "\n".join([question, "", *lines])
    return TextProblem(
        key=key, level=0, question=text, answer=letters[order.index(0)], kind="choice", choices=letters
    )


def _answer_or_box(row: Row) -> str:
    r"""Return the stated answer, or what is in the last box of the solution where the data set has no answer."""
    if name_of(row, "answer") is None and name_of(row, "solution") is not None:
        boxed = last_boxed(text_of(row, "solution"))
        if not boxed:
            raise wrong(row, "solution", "it has no box", r"'… \boxed{42}', or a field 'answer'")
        return boxed
    value = value_of(row, "answer")
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if whole and not isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, float) and math.isfinite(value) else text_of(row, "answer")


FORMATS: dict[str, Format] = {
    "gsm8k": Format(understand=_gsm8k, config="main"),
    "math-500": Format(understand=_math),
    "aime": Format(understand=_aime),
    "gpqa": Format(understand=_gpqa, config="gpqa_diamond"),
    "amc": Format(understand=_amc),
    "minerva": Format(understand=_math),
    "olympiadbench": Format(understand=_olympiad, config="OE_TO_maths_en_COMP"),
    "svamp": Format(understand=_svamp),
}
"""By name: what the published data sets of this name look like."""
