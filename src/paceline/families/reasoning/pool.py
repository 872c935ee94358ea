"""The launch's own traces of every question: what techniques would draw, what replays draw from, the plain vote.

Techniques draw the same traces by their indices, so they share all luck: what differs is what they do with it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning import estimates
from paceline.families.reasoning.archive import Archive, Recording
from paceline.families.reasoning.executor import Draws, Executor
from paceline.families.reasoning.language import LanguageModel
from paceline.families.reasoning.problems import Problem, extract
from paceline.families.reasoning.requests import Finished, Plan, Question, Sample, Task

Point = tuple[float, float]
"""Tokens and accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share."""

    model: LanguageModel
    task: Task
    problems: tuple[Problem, ...]
    questions: tuple[Question, ...]
    seed: int
    """Of the traces' draws."""
    width: int
    num_orders: int

    def draws(self, question: Question, index: int) -> tuple[int, ...]:
        """Return the key of a question's trace."""
        return (self.seed, question.key, index)

    def reordered(self, order: int) -> Draws:
        """Return the draws of a replay, in which each question's traces come in another order."""

        def draws(question: Question, index: int) -> tuple[int, ...]:
            places = list(range(self.task.samples))
            random.Random(f"{self.seed}/{question.key}/{order}").shuffle(places)
            return self.draws(question, places[index])

        return draws

    def executor(self, model: LanguageModel, draws: Draws | None = None) -> Executor:
        """Return what runs a method on the block's questions."""
        prompts = {p.key: p.prompt for p in self.problems}
        return Executor(
            model, self.task, prompts, reader=extract, draws=draws or self.draws, width=self.width
        )

    def right(self, finished: Sequence[Finished]) -> list[float]:
        """Grade answers: 1 where one equals the problem's."""
        truth = {p.key: p.answer for p in self.problems}
        return [float(f.answer == truth[f.key]) for f in finished]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All traces of all questions, with what a plain vote over some of them gives."""

    archive: Archive
    traces: Mapping[int, Mapping[int, tuple[int, ...]]]
    """Decoded tokens by question and index."""
    answers: Mapping[int, tuple[str | None, ...]]
    """Answers by question."""
    curve: tuple[Point, ...]
    """Tokens and accuracy of a vote over 1 … samples traces."""
    pass_at_all: float
    """Share of questions that some trace answers rightly."""


def everything(question: Question) -> Plan:
    """Draw all traces of a question and answer nothing."""
    yield [Sample(index=i) for i in range(question.samples)]
    return None


def draw_pool(setting: Setting) -> Pool:
    """Decode all traces of all questions."""
    archive = Archive(setting.model.identity)
    found = setting.executor(Recording(setting.model, archive)).run(setting.questions, everything)
    by_key = {f.key: f.traces for f in found}
    answers = {
        key: tuple(extract(traces[i]) for i in range(setting.task.samples)) for key, traces in by_key.items()
    }
    votes = [estimates.consensus(answers[p.key], p.answer) for p in setting.problems]
    each = fmean(len(tokens) for traces in by_key.values() for tokens in traces.values())
    curve = tuple(((k + 1) * each, fmean(v[k] for v in votes)) for k in range(setting.task.samples))
    right = [sum(a == p.answer for a in answers[p.key]) for p in setting.problems]
    return Pool(
        archive=archive,
        traces=by_key,
        answers=answers,
        curve=curve,
        pass_at_all=fmean(estimates.pass_at_k(setting.task.samples, r, setting.task.samples) for r in right),
    )
