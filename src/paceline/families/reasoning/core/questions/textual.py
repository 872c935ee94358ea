"""Questions in words: published problems, put to a model that has a tokenizer, read and graded as free text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from paceline.families.reasoning.core.answers.text import opened_thinking
from paceline.families.reasoning.core.grading.free_text import Grader
from paceline.families.reasoning.core.problems.files import TextProblem, fingerprint
from paceline.families.reasoning.core.questions.reading import Asked
from paceline.families.reasoning.core.questions.state import Script

REQUEST = {
    "number": "Think step by step, then give the final number inside \\boxed{}.",
    "math": "Think step by step, then give the final answer inside \\boxed{}.",
    "choice": "Think step by step, then give the letter of the right choice inside \\boxed{}.",
}
PROBE = "\n\nThe final answer is \\boxed{"
MAX_PROBE_TOKENS = 20
STEP_END = "\n\n"


class Writer(Protocol):
    """What a model of words offers beside decoding."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""

    def chat(self, question: str) -> tuple[int, ...]:
        """Return a prompt that asks a question."""


class Textual:
    """Reads what a model writes on published problems.

    Args:
        writer: The model.
        problems: By their number.
        grader: Of their kind, started.
        outside: Makes a context for work that is the harness's, and no technique's.
        source: What a record says of where the problems are from.
    """

    def __init__(
        self,
        writer: Writer,
        problems: Sequence[TextProblem],
        grader: Grader,
        outside: Callable[[], AbstractContextManager[None]],
        source: Mapping[str, object] | None = None,
    ) -> None:
        self._source = dict(source or {})
        grader.choices = max((one.choices for one in problems), key=len, default="") or grader.choices
        self._writer, self._grader, self._outside = writer, grader, outside
        self._problems = tuple(problems)
        self._names: list[list[str]] = [[] for _ in problems]
        """Different answers of each question's own traces; an answer that equals one of them is called like it."""
        self._frozen = False
        self._thinks: list[str] = []
        """Of each question, the mark that its prompt ends with where the model begins by thinking."""
        self._read: dict[tuple[int, str], str | None] = {}
        probe, ends = writer.encode(PROBE), writer.encode(STEP_END)
        self.asked = tuple(self._asked(one, probe, ends) for one in problems)

    def _asked(self, problem: TextProblem, probe: tuple[int, ...], ends: tuple[int, ...]) -> Asked:
        prompt = self._writer.chat(f"{problem.question}\n\n{REQUEST[problem.kind]}")
        self._thinks.append(opened_thinking(self._writer.decode(prompt)))
        return Asked(
            level=problem.level,
            question=problem.question,
            truth=problem.answer,
            script=Script(
                prompt=prompt,
                openings=((),),
                part_end=(),
                # A model stops at single tokens; where the tokenizer has several for it, steps cannot be told.
                step_end=ends if len(ends) == 1 else (),
                conclusion=(),
                probe=probe,
                probe_tokens=MAX_PROBE_TOKENS,
            ),
            num_parts=1,
        )

    def answer(self, number: int, tokens: Sequence[int]) -> str | None:
        """Return a text's answer, by the name of the first one that it equals of those that the question has had."""
        with self._outside():
            # A template that opens the thinking itself leaves the mark in the prompt.
            text = self._thinks[number] + self._writer.decode(tokens)
            # The same text is graded once: what a formula equals can take seconds.
            if (number, text) not in self._read:
                self._read[number, text] = self._named(number, self._grader.extract(text))
        return self._read[number, text]

    def _named(self, number: int, answer: str | None) -> str | None:
        if answer is None:
            return None
        # equality does not carry over from pair to pair: a wrong answer never gets a right one's name
        truth = self._problems[number].answer
        right = self._grader.equal(answer, truth)
        names = [n for n in self._names[number] if self._grader.equal(n, truth) == right]
        found = self._grader.canonical([*names, answer])[-1]
        # Names come from the launch's own traces alone, in their order, so every technique reads by the same ones.
        if found is not None and found not in names and not self._frozen:
            self._names[number].append(found)
        return found

    def freeze(self) -> None:
        """Let nothing that is read from now on become a name for others: techniques must not meet in it."""
        self._frozen = True

    def right(self, number: int, answer: str | None) -> bool:
        """Compare with the truth."""
        with self._outside():
            return self._grader.equal(answer, self._problems[number].answer)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text."""
        return self._writer.decode(tokens)

    def facts(self) -> dict[str, object]:
        """Return which problems these are, and how often grading failed."""
        return {
            "problems": fingerprint(self._problems),
            **self._source,
            "grading_failures": self._grader.failures,
            "grading_timeouts": self._grader.timeouts,
            "grading_faults": list(self._grader.faults),
            **self._grader.reading_facts(),
        }
