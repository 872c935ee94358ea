"""How a launch's questions are put to a model, and how what it writes is read and graded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.families.reasoning.core.problems.embedded import (
    CONCLUSION,
    MAX_PROBE_TOKENS,
    PROBE,
    SEGMENT_END,
    STEP_END,
    Problem,
    branches,
    decode,
    encode,
    extract,
)
from paceline.families.reasoning.core.questions.state import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question of a launch, with what techniques do not see."""

    level: int
    """Difficulty; 0 where none is stated."""
    question: str
    truth: str
    script: Script
    num_parts: int
    """Parts that can be worked out apart from each other; one at least."""


class Reading(Protocol):
    """Reads what models write on a launch's questions."""

    def answer(self, number: int, tokens: Sequence[int]) -> str | None:
        """Return what the tokens after a question's prompt answer; equal answers have one text."""

    def right(self, number: int, answer: str | None) -> bool:
        """Tell whether a question is answered rightly."""

    def freeze(self) -> None:
        """Note that the launch's own traces have all been read."""

    def text(self, tokens: Sequence[int]) -> str:
        """Return tokens as people read them."""

    def facts(self) -> dict[str, object]:
        """Return what a record says of the problems and of their grading."""


class Procedural:
    """The embedded reasoners' own problems, whose answers are single symbols."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._truths = [problem.answer for problem in problems]
        self.asked = tuple(_asked(problem) for problem in problems)

    def answer(self, number: int, tokens: Sequence[int]) -> str | None:
        """Return the answer of a trace that has ended by one."""
        return extract(tokens)

    def right(self, number: int, answer: str | None) -> bool:
        """Compare with the problem's result."""
        return answer == self._truths[number]

    def freeze(self) -> None:
        """Do nothing: answers are symbols."""

    def text(self, tokens: Sequence[int]) -> str:
        """Return the symbols, separated by spaces."""
        return decode(tokens)

    def facts(self) -> dict[str, object]:
        """Return that seeds say all."""
        return {"problems": "procedural"}


def _asked(problem: Problem) -> Asked:
    num_parts = len(branches(problem.prompt))
    return Asked(
        level=problem.level,
        question=decode(problem.prompt),
        truth=problem.answer,
        script=Script(
            prompt=problem.prompt,
            openings=tuple(encode(f"T{i + 1}") for i in range(num_parts)),
            part_end=(SEGMENT_END,),
            step_end=STEP_END,
            conclusion=CONCLUSION,
            probe=PROBE,
            probe_tokens=MAX_PROBE_TOKENS,
        ),
        num_parts=num_parts,
    )
