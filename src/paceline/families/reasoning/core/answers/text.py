r"""Reads answers out of free text by exact rules: numbers, letters of choices, and the text of formulas.

The rules are written down in ``docs/answers.md``. Thinking, and what a model goes on to ask itself, are taken away
first. Then what it states is taken from the first of these places that there is: the last mark (``\boxed{…}``,
``<answer>…</answer>``, ``#### …``), the last sentence with "answer is" or its like in other languages, the end of the
text. A stated place that cannot be read is no answer; the rules do not look on for something that fits. Two answers are
none.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from paceline.families.reasoning.core.answers.formulas import (
    MAX_FORMULA,
    canonical_formula,
    exact_number,
    in_base,
    quantity,
    quickly_equal,
    tidy,
    words,
)
from paceline.families.reasoning.core.answers.letters import CHOICES, extract_choice
from paceline.families.reasoning.core.answers.numbers import (
    is_joined_by_or,
    last_number,
    number_text,
    read_number,
    stated_number,
)
from paceline.families.reasoning.core.answers.places import (
    corrected,
    last_boxed,
    marked,
    opened_thinking,
    sentences,
    solution,
)

Kind = Literal["number", "math", "choice"]
KINDS: tuple[Kind, ...] = ("number", "math", "choice")

_MATHEMATICS = re.compile(
    r"[*\s]*(?:\$\$([^$]+)\$\$|\$([^$]+)\$|\\\((.+)\\\)|\\\[(.+)\\\]|(\([^()]*,[^()]*\)|\{[^{}]*\}|[(\[][^()\[\]]*,[^()\[\]]*[)\]]))[*\s.]*",
    re.DOTALL,
)
"""A sentence that is one formula, or a pair, set or interval in plain signs."""

__all__ = [
    "CHOICES",
    "KINDS",
    "MAX_FORMULA",
    "Kind",
    "canonical_formula",
    "exact_number",
    "extract_choice",
    "extract_number",
    "in_base",
    "last_boxed",
    "marked_formula",
    "number_text",
    "opened_thinking",
    "quantity",
    "quickly_equal",
    "read_number",
    "solution",
    "tidy",
    "words",
]


def extract_number(text: str) -> str | None:
    """Return the number that a text answers by; without a stated one the last number counts."""
    told = solution(text)
    if told is None:
        return None
    place = marked(told)
    # Final even where it is unreadable: looking on would find some number of the working by luck.
    if place is not None:
        behind = corrected(told, place)
        if behind is not None:
            has_one, value = _stated(behind)
            if has_one:
                return None if value is None else number_text(value)
        values = {read_number(part) for part in place.parts}
        value = values.pop() if len(values) == 1 else None
        if value is None or is_joined_by_or(told[place.end :], value):
            return None
        return number_text(value)
    has_one, value = _stated(told)
    if not has_one:
        value = last_number(told)
    return None if value is None else number_text(value)


def marked_formula(text: str) -> tuple[bool, str | None]:
    """Return whether a text marks or states its formula so that no library has to look for it, and that formula.

    Args:
        text: A solution.
    """
    place = marked(text)
    behind = text if place is None else corrected(text, place)
    if behind is not None:
        for sentence in sentences(behind):
            whole = _MATHEMATICS.fullmatch(sentence)
            if whole:
                return True, next(filter(None, whole.groups()))
            # Other mathematics of a sentence is the library's to find; a plain number is read here.
            if "\\" in sentence or sentence.count("$") > 1:
                break
            has_one, value = stated_number(sentence)
            if has_one and (value is None or quantity(tidy(sentence)).unit is None):
                return True, None if value is None else number_text(value)
            if has_one:
                return True, sentence
    if place is None:
        return False, None
    # "x = 3 or x = 5" and "3 and 5" in two boxes are a list of two.
    return True, ", ".join(place.parts)


def _stated(text: str) -> tuple[bool, Fraction | None]:
    """Return whether a sentence states a number, and the last one that does."""
    for sentence in sentences(text):
        has_one, value = stated_number(sentence)
        if has_one:
            return True, value
    return False, None
