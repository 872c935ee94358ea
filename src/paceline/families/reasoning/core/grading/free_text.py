r"""Grades free text: what a trace answers, whether that is the truth, and which answers are the same.

Numbers and choices follow the rules of ``answers.text``. Formulas are compared by ``math-verify`` in a process of its
own (``service``), but for what is decided before it is asked, because it is too generous there: equal text is
equal; words are compared as words (``Evelyn`` is not ``Evenly``, which as products of letters it is); a number in a
stated base equals only the same digits in the same base; an ordered pair is no set; units of measure that both sides
state are the same; and two exact values are equal only if they are.

It does not tell ``10\%`` from 10 or from 0.1, forgives the seventh digit of a number that has decimals, and
takes an open interval for a pair. So "equal" carries over from one pair to the next only by chance, and ``canonical``
compares with the first answer of each class and never chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from paceline.families.reasoning.core.answers.characters import normal_characters
from paceline.families.reasoning.core.answers.places import is_stated
from paceline.families.reasoning.core.answers.text import (
    CHOICES,
    KINDS,
    MAX_FORMULA,
    Kind,
    canonical_formula,
    extract_choice,
    extract_number,
    last_boxed,
    marked_formula,
    number_text,
    quantity,
    quickly_equal,
    read_number,
    solution,
    tidy,
)
from paceline.families.reasoning.core.grading.service import Call, Service

MAX_TAIL = 2000
"""Characters at a text's end in which a formula is looked for where nothing is in a box."""
MAX_FAULTS = 20

Pair = tuple[str | None, str]
"""An answer and a truth."""


class Grader:
    """Reads and compares answers of one kind; a context, whose process for formulas ends with it.

    Args:
        kind: ``number``, ``math`` or ``choice``.
        timeout_s: Of one comparison of formulas; what takes longer counts as unequal, in ``timeouts`` and ``faults``.
        choices: The letters of choices.

    Raises:
        PrerequisiteError: Formulas are to be compared and ``math-verify`` is not installed.
        ValueError: The kind is unknown, or the time is none.
    """

    def __init__(self, kind: Kind, *, timeout_s: float = 5.0, choices: str = CHOICES) -> None:
        if kind not in KINDS:
            raise ValueError(f"no kind '{kind}' of answers; there are: {', '.join(KINDS)}")
        if not timeout_s > 0:
            raise ValueError(f"a time limit of {timeout_s} s; above 0")
        self.kind: Kind = kind
        self.failures = 0
        """Comparisons and readings that ended in an error; they count as unequal, and as no answer."""
        self.timeouts = 0
        """Comparisons and readings that were stopped; they count as unequal, and as no answer."""
        self.faults: list[str] = []
        """What happened in the first of these."""
        self.read = self.unstated = 0
        """Answers that were read, and those among them that no mark and no sentence states: the last number, letter or
        formula was taken for the answer, also where a language's word for it is not known."""
        self._timeout_s, self.choices = timeout_s, choices
        self._known: dict[Call, bool | str | None] = {}
        self._service: Service | None = None

    def __enter__(self) -> Self:
        """Start the process that compares formulas, where there are some."""
        if self.kind == "math" and self._service is None:
            self._service = Service(self._timeout_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        if self._service is not None:
            self._service.close()
            self._service = None

    def extract(self, text: str) -> str | None:
        """Return what a text answers, in a form that equal answers mostly share; None where it answers nothing."""
        return self.extract_all([text])[0]

    def extract_all(self, texts: Sequence[str]) -> list[str | None]:
        """Return what each text answers, and count how it was told."""
        found = self._extracted(texts)
        for text, answer in zip(texts, found, strict=True):
            self.read += answer is not None
            self.unstated += answer is not None and not is_stated(text)
        return found

    def reading_facts(self) -> dict[str, int]:
        """Return how many answers were read, and how many of them were not stated, for a record."""
        return {"answers_read": self.read, "answers_unstated": self.unstated}

    def _extracted(self, texts: Sequence[str]) -> list[str | None]:
        if self.kind == "number":
            return [extract_number(text) for text in texts]
        if self.kind == "choice":
            return [extract_choice(text, self.choices) for text in texts]
        # Marked and plainly stated answers are read here, exactly; only other texts need the library's search.
        told = [solution(text) for text in texts]
        marked = [(True, None) if text is None else marked_formula(text) for text in told]
        calls: list[Call | None] = [
            None if has_one or text is None else ("extract", normal_characters(text[-MAX_TAIL:]), "")
            for text, (has_one, _) in zip(told, marked, strict=True)
        ]
        self._ask([call for call in calls if call is not None])
        found = (
            one if call is None else self._known[call] for call, (_, one) in zip(calls, marked, strict=True)
        )
        return [
            canonical_formula(one) if isinstance(one, str) and len(one) <= MAX_FORMULA else None
            for one in found
        ]

    def equal(self, answer: str | None, truth: str) -> bool:
        """Tell whether an answer, as ``extract`` gave it, is the truth; None never is.

        Raises:
            ValueError: The truth is not of the grader's kind.
        """
        return self.equal_all([(answer, truth)])[0]

    def equal_all(self, pairs: Iterable[Pair]) -> list[bool]:
        """Tell for each answer and truth whether they are equal.

        Raises:
            ValueError: A truth is not of the grader's kind.
        """
        pairs = list(pairs)
        if self.kind != "math":
            return [
                answer is not None and self.normal(answer) == self.normal(truth) for answer, truth in pairs
            ]
        # The truth first: the library treats the two sides differently.
        sides = [_without_units(tidy(truth), tidy(answer)) if answer else None for answer, truth in pairs]
        quick = [False if side is None else quickly_equal(*side) for side in sides]
        calls: list[Call | None] = [
            ("equal", *side) if side is not None and said is None else None
            for side, said in zip(sides, quick, strict=True)
        ]
        self._ask([call for call in calls if call is not None])
        return [
            bool(said) if call is None else self._known[call] is True
            for call, said in zip(calls, quick, strict=True)
        ]

    def canonical(self, answers: Sequence[str | None]) -> list[str | None]:
        """Name every answer by the first one that it equals, both ways round, of those that name a class already.

        An answer is compared with the names alone, so that near misses do not add up.
        """
        names: list[str] = []
        named: dict[str, str] = {}
        for answer in dict.fromkeys(answers):
            if answer is None:
                continue
            # Both ways round, since the library's equality is not symmetric: a class needs both.
            ways = self.equal_all([pair for name in names for pair in ((answer, name), (name, answer))])
            equal = (
                name for name, one, other in zip(names, ways[::2], ways[1::2], strict=True) if one and other
            )
            named[answer] = next(equal, answer)
            if named[answer] == answer:
                names.append(answer)
        return [None if answer is None else named[answer] for answer in answers]

    def normal(self, answer: str) -> str:
        """Return the one text of a number, a choice or a formula.

        Raises:
            ValueError: It is not of the grader's kind.
        """
        if self.kind == "choice":
            answer = answer.strip("() ")
            if len(answer) == 1 and answer.upper() in self.choices:
                return answer.upper()
            raise ValueError(f"'{answer}' is none of the choices {self.choices}")
        if self.kind == "number":
            value = read_number(last_boxed(answer) or answer)
            if value is None:
                raise ValueError(f"'{answer}' is no number")
            return number_text(value)
        found = canonical_formula(answer)
        if found is None:
            raise ValueError("an empty formula")
        return found

    def _ask(self, calls: Sequence[Call]) -> None:
        """Let the process answer what is not known yet."""
        new = [call for call in dict.fromkeys(calls) if call not in self._known]
        if not new:
            return
        if self._service is None:
            raise RuntimeError(
                "a grader of formulas works inside of its context: with Grader('math') as grader"
            )
        for call, (ending, value) in zip(new, self._service.run(new), strict=True):
            # Failures are remembered too: a formula that hangs must not cost its limit again in every vote.
            self._known[call] = value if ending == "ok" else None
            if ending != "ok":
                self.timeouts += ending == "timeout"
                self.failures += ending == "failure"
                if len(self.faults) < MAX_FAULTS:
                    self.faults.append(f"{' '.join(call)[:200]}: {value}")


def _without_units(truth: str, answer: str) -> tuple[str, str] | None:
    """Return two tidy formulas without their units of measure; None where both state one and these differ."""
    one, other = quantity(truth), quantity(answer)
    if one.unit is not None and other.unit is None:
        other = quantity(answer, beside_a_unit=True)
    if other.unit is not None and one.unit is None:
        one = quantity(truth, beside_a_unit=True)
    if one.unit is not None and other.unit is not None and one.unit != other.unit:
        return None
    return one.core, other.core
