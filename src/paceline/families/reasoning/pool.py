"""The launch's own traces of every question: what techniques would draw, what replays draw from, the plain vote.

Techniques draw the same traces by their indices, so they share all luck: what differs is what they do with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning import estimates
from paceline.families.reasoning.archive import Archive, Recording
from paceline.families.reasoning.executor import Draws, Executor, Script
from paceline.families.reasoning.language import LanguageModel
from paceline.families.reasoning.problems import (
    MAX_PROBE_TOKENS,
    PROBE,
    SEGMENT_END,
    Problem,
    branches,
    encode,
    extract,
)
from paceline.families.reasoning.requests import Finished, Method, Plan, Question, Sample, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share."""

    model: LanguageModel
    task: Task
    problems: tuple[Problem, ...]
    """By their number."""
    seed: int
    """Of the traces' draws."""
    width: int
    num_orders: int

    @property
    def questions(self) -> tuple[Question, ...]:
        """What techniques see of the problems."""
        return tuple(
            Question(number=number, samples=self.task.samples, num_parts=len(branches(problem.prompt)))
            for number, problem in enumerate(self.problems)
        )

    def draws(self, number: int, index: int) -> tuple[int, ...]:
        """Return the key of a question's trace."""
        return (self.seed, number, index)

    def reordered(self, order: int) -> Draws:
        """Return the draws of a replay, in which each question's traces come in another order."""

        def draws(number: int, index: int) -> tuple[int, ...]:
            places = list(range(self.task.samples))
            random.Random(f"{self.seed}/{number}/{order}").shuffle(places)
            return self.draws(number, places[index])

        return draws

    def run(self, model: LanguageModel, method: Method, draws: Draws | None = None) -> list[Finished]:
        """Let a method answer all questions."""
        scripts = [
            Script(
                prompt=problem.prompt,
                openings=tuple(encode(f"T{i + 1}") for i in range(len(branches(problem.prompt)))),
                part_end=(SEGMENT_END,),
                probe=PROBE,
                probe_tokens=MAX_PROBE_TOKENS,
            )
            for problem in self.problems
        ]
        executor = Executor(
            model, self.task, scripts, reader=extract, draws=draws or self.draws, width=self.width
        )
        return executor.run(self.questions, method)

    def right(self, finished: Sequence[Finished]) -> list[float]:
        """Grade answers: 1 where one equals the problem's."""
        return [float(f.answer == self.problems[f.number].answer) for f in finished]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All traces of all questions, with what a plain vote over some of them gives."""

    archive: Archive
    traces: tuple[tuple[tuple[int, ...], ...], ...]
    """Decoded tokens by question and index."""
    curve: tuple[estimates.Point, ...]
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
    found = setting.run(Recording(setting.model, archive), everything)
    traces = tuple(tuple(story.tokens for story in one.stories) for one in found)
    answers = [[extract(tokens) for tokens in of_one] for of_one in traces]
    truths = [problem.answer for problem in setting.problems]
    samples, count = setting.task.samples, len(truths)
    votes = [estimates.consensus(given, truth) for given, truth in zip(answers, truths, strict=True)]
    total = sum(len(tokens) for of_one in traces for tokens in of_one)
    right = [sum(answer == truth for answer in given) for given, truth in zip(answers, truths, strict=True)]
    return Pool(
        archive=archive,
        traces=traces,
        curve=tuple(
            ((k + 1) * total / (samples * count), fmean(v[k] for v in votes)) for k in range(samples)
        ),
        pass_at_all=fmean(estimates.pass_at_k(samples, r, samples) for r in right),
    )
