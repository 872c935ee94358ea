"""Tables of one's own: question and answer by the names of their columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from paceline.families.reasoning.core.answers.text import Kind, last_boxed, number_text, read_number
from paceline.families.reasoning.core.problems.fields import (
    TextProblem,
    key_of,
    name_of,
    problem,
    text_of,
    value_of,
    wrong,
)
from paceline.families.reasoning.core.problems.formats import Format
from paceline.families.reasoning.core.problems.rows import Row

QUESTIONS = ("question", "problem", "prompt", "input", "query")
ANSWERS = ("answer", "final_answer", "target", "solution", "output", "label")
"""Columns that are taken where none is named, the first that a row has."""
MAX_CHOICES = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a table's columns are."""

    questions: tuple[str, ...] = QUESTIONS
    """Several are alternatives, the first that there is."""
    answers: tuple[str, ...] = ANSWERS
    choices: tuple[str, ...] = ()
    """One column with a list, or one for each choice; none where answers are free."""
    kind: Kind = "math"

    def format(self) -> Format:
        """Return how rows are understood."""
        return Format(understand=self._understand)

    def _understand(self, row: Row, seed: int) -> TextProblem:
        question = text_of(row, *self.questions)
        if self.choices:
            return self._choice(row, question)
        name = name_of(row, *self.answers)
        answer = _answer(row, value_of(row, *self.answers), str(name))
        if self.kind == "number":
            value = read_number(answer)
            if value is None:
                raise wrong(row, str(name), f"it is '{answer}'", "a number; --answers=math reads formulas")
            answer = number_text(value)
        return problem(question, answer, self.kind)

    def _choice(self, row: Row, question: str) -> TextProblem:
        choices = self._texts(row)
        letters = ascii_uppercase[: len(choices)]
        name, given = str(name_of(row, *self.answers)), value_of(row, *self.answers)
        told = str(given).strip()
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(choices):
            right = letters[given]
        elif told.upper() in letters and len(told) == 1:
            right = told.upper()
        elif told.isdigit() and told not in choices and int(told) < len(choices):
            right = letters[int(told)]
        elif told in choices:
            right = letters[choices.index(told)]
        else:
            raise wrong(
                row, name, f"it is {given!r}", f"a letter of {letters}, a place from 0, or one of the choices"
            )
        text = "\n".join([question, "", *(f"{a}) {b}" for a, b in zip(letters, choices, strict=True))])
        key = key_of("\n".join([question, *sorted(choices)]))
        return TextProblem(key=key, level=0, question=text, answer=right, kind="choice", choices=letters)

    def _texts(self, row: Row) -> Sequence[str]:
        if len(self.choices) > 1:
            return [str(value_of(row, name)).strip() for name in self.choices]
        given = value_of(row, *self.choices)
        found = given.get("text") if isinstance(given, dict) else given  # a list, or texts beside labels
        if not isinstance(found, list) or not 2 <= len(found) <= MAX_CHOICES:
            raise wrong(
                row, self.choices[0], f"it is {type(given).__name__}", f"a list of 2 to {MAX_CHOICES} choices"
            )
        return [str(one).strip() for one in found]


def of_kind(columns: Columns, problems: Sequence[TextProblem]) -> Columns:
    """Return columns with the kind that all answers are of: numbers where each is one, else formulas."""
    numbers = all(read_number(one.answer) is not None for one in problems)
    return replace(columns, kind="number") if numbers and not columns.choices else columns


def _answer(row: Row, value: object, name: str) -> str:
    """Return an answer as its column has it: behind the last ``####`` or in the last box where there is one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        raise wrong(row, name, "it is empty", "an answer")
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = str(value)
    return (text.rpartition("####")[2] if "####" in text else last_boxed(text) or text).strip()
