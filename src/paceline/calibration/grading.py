"""The reader and grader of answers measured on the corpus, beside ``math-verify`` alone and exact match.

A false accept is a wrong answer that is called right, a false refusal a right one that is called wrong; what cannot be
read is called wrong. The promise is about the answers that are held out of the rules.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import PrerequisiteError
from paceline.calibration.answer_corpus import HELD_OUT, SPLITS, Answer, answers
from paceline.calibration.trials import Figure
from paceline.families.reasoning.core.answers.text import last_boxed
from paceline.families.reasoning.core.grading.free_text import Grader
from paceline.families.reasoning.core.grading.service import INSTALL
from paceline.stats.estimates import wilson

FALSE_ACCEPTS, FALSE_REFUSALS = 0.005, 0.02
"""Shares of the held-out wrong and right answers, at most."""
TIMEOUT_S = 20.0
OURS, LIBRARY, EXACT = "paceline", "math-verify alone", "exact match"

Judge = Callable[[Sequence[Answer]], list[bool]]
"""Tells of answers which are right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What a judge got wrong of some answers."""

    accepts: int
    """Wrong answers that it calls right."""
    refusals: int
    """Right answers that it calls wrong."""
    num_wrong: int
    num_right: int

    @property
    def total(self) -> int:
        """Both kinds of error."""
        return self.accepts + self.refusals


def grading_figures(
    progress: Callable[[str], None] = lambda name: None, *, judge: Judge | None = None
) -> list[Figure]:
    """Measure the grader on the corpus.

    Args:
        progress: Called with the name of what is measured next.
        judge: In the place of the grader, to try the figures themselves.

    Raises:
        PrerequisiteError: ``math-verify`` is not installed.
    """
    corpus = answers()
    verdicts = {}
    for name, one in ((OURS, judge or by_grader), (LIBRARY, by_library), (EXACT, by_exact_match)):
        progress(name)
        verdicts[name] = one(corpus)
    figures = []
    for split in SPLITS:
        found = {name: _errors(corpus, said, split) for name, said in verdicts.items()}
        figures += [_accepts(split, found), _refusals(split, found)]
    for kind in dict.fromkeys(one.kind for one in corpus):
        figures.append(
            _of_kind(kind, {name: _errors(corpus, said, HELD_OUT, kind) for name, said in verdicts.items()})
        )
    return figures


def by_grader(corpus: Sequence[Answer]) -> list[bool]:
    """Return what this package says."""
    with Grader("math", timeout_s=TIMEOUT_S) as formulas:
        return [_graded(one, formulas) for one in corpus]


def by_library(corpus: Sequence[Answer]) -> list[bool]:
    """Return what ``math-verify`` says with its own search in the text.

    Raises:
        PrerequisiteError: It is not installed.
    """
    try:
        library: Any = importlib.import_module("math_verify")
    except ImportError as error:
        raise PrerequisiteError("the comparison needs the package math-verify", fix=INSTALL) from error
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return [_by_library(one, library) for one in corpus]
    finally:
        logging.disable(level)


def by_exact_match(corpus: Sequence[Answer]) -> list[bool]:
    """Return whether the last box, or else the last word, is the gold answer to the letter."""
    return [
        (last_boxed(one.text) or " ".join(one.text.split()[-1:]).strip(".*$`")) == one.gold for one in corpus
    ]


def _graded(one: Answer, formulas: Grader) -> bool:
    grader = formulas if one.reads == "math" else Grader(one.reads, choices=one.choices)
    return grader.equal(grader.extract(one.text), one.gold)


def _by_library(one: Answer, library: Any) -> bool:
    if one.reads == "choice":
        letters = [library.StringExtractionConfig(strings=tuple(one.choices))]
        given = [library.parse(text, letters) for text in (one.gold.strip("()"), one.text)]
    else:
        gold = one.gold if r"\boxed" in one.gold else rf"\boxed{{{one.gold}}}"
        given = [library.parse(gold), library.parse(one.text)]
    return bool(library.verify(*given))


def _errors(corpus: Sequence[Answer], said: Sequence[bool], split: str, kind: str | None = None) -> Errors:
    chosen = [
        (one.right, verdict)
        for one, verdict in zip(corpus, said, strict=True)
        if one.split == split and kind in (None, one.kind)
    ]
    return Errors(
        accepts=sum(verdict and not right for right, verdict in chosen),
        refusals=sum(right and not verdict for right, verdict in chosen),
        num_wrong=sum(not right for right, _ in chosen),
        num_right=sum(right for right, _ in chosen),
    )


def _accepts(split: str, found: dict[str, Errors]) -> Figure:
    hits = {name: errors.accepts for name, errors in found.items()}
    what = "wrong answers that are called right"
    return _share(f"false accepts, {split}", what, hits, found[OURS].num_wrong, FALSE_ACCEPTS)


def _refusals(split: str, found: dict[str, Errors]) -> Figure:
    hits = {name: errors.refusals for name, errors in found.items()}
    what = "right answers that are called wrong"
    return _share(f"false refusals, {split}", what, hits, found[OURS].num_right, FALSE_REFUSALS)


def _of_kind(kind: str, found: dict[str, Errors]) -> Figure:
    hits = {name: errors.total for name, errors in found.items()}
    trials = found[OURS].num_right + found[OURS].num_wrong
    parts = {name: [errors.accepts, errors.refusals] for name, errors in found.items()}
    what = f"held-out answers, {found[OURS].num_right} of them right, with the wrong verdict"
    # No more errors than the library alone makes of the same answers.
    return _share(f"errors, {kind}", what, hits, trials, hits[LIBRARY] / trials, parts)


def _share(
    name: str, what: str, hits: dict[str, int], trials: int, limit: float, parts: object = None
) -> Figure:
    low, high = wilson(hits[OURS], trials)
    others = ", ".join(f"{other} {hits[other]}" for other in (LIBRARY, EXACT))
    return Figure(
        name=name,
        what=f"{what}; {others}",
        value=hits[OURS] / trials,
        low=low,
        high=high,
        unit="ratio",
        limit=limit,
        reached=hits[OURS] / trials <= limit,
        trials=trials,
        hits=hits[OURS],
        details={"hits": hits, **({"accepts_and_refusals": parts} if parts else {})},
    )
