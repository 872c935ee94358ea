"""The launch's own traces of every question: what techniques would draw, what replays draw from, the plain vote.

Techniques draw the same traces by their indices, so they share all luck: what differs is what they do with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning import estimates
from paceline.families.reasoning.archive import Archive, Recording, digest_of
from paceline.families.reasoning.executor import Executor
from paceline.families.reasoning.language import LanguageModel
from paceline.families.reasoning.models import Draws, Judge, Models
from paceline.families.reasoning.problems import (
    CONCLUSION,
    MAX_PROBE_TOKENS,
    PROBE,
    SEGMENT_END,
    STEP_END,
    Problem,
    branches,
    encode,
    extract,
)
from paceline.families.reasoning.replay import Replay
from paceline.families.reasoning.requests import Finished, Method, Plan, Question, Sample, Task
from paceline.families.reasoning.seat import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives:
    """What the model and its partner decoded and scored."""

    model: Archive
    partner: Archive | None

    @property
    def num_tokens(self) -> int:
        """Decoded tokens of all traces."""
        return self.model.num_tokens + (0 if self.partner is None else self.partner.num_tokens)

    def digest(self) -> str:
        """Return the SHA-256 of all traces."""
        own = self.model.digest()
        return own if self.partner is None else digest_of(own, self.partner.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share."""

    model: LanguageModel
    partner: LanguageModel | None = None
    judge: Judge | None = None
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

    @property
    def partner_weight(self) -> float:
        """The partner's parameters over the model's; 1 without a partner, or where they are not known."""
        own = self.model.num_parameters
        other = None if self.partner is None else self.partner.num_parameters
        return other / own if own and other else 1.0

    def archives(self) -> Archives:
        """Return empty archives."""
        partner = None if self.partner is None else Archive(self.partner.identity)
        return Archives(model=Archive(self.model.identity), partner=partner)

    def recording(self, into: Archives) -> Models:
        """Return the models, written down into archives."""
        partner = None
        if self.partner is not None and into.partner is not None:
            partner = Recording(self.partner, into.partner)
        return self._models(Recording(self.model, into.model), partner)

    def replaying(self, of: Archives, *, live: bool) -> Models:
        """Return models that answer from archives; what is missing is decoded and added, or refused."""
        context, partner = self.model.context, None
        if self.partner is not None and of.partner is not None:
            partner = Replay(of.partner, self.partner if live else None, context=self.partner.context)
        return self._models(Replay(of.model, self.model if live else None, context=context), partner)

    def _models(self, model: LanguageModel, partner: LanguageModel | None) -> Models:
        return Models(model=model, partner=partner, partner_weight=self.partner_weight, judge=self.judge)

    def run(self, models: Models, method: Method, draws: Draws | None = None) -> list[Finished]:
        """Let a method answer all questions."""
        scripts = [
            Script(
                prompt=problem.prompt,
                openings=tuple(encode(f"T{i + 1}") for i in range(len(branches(problem.prompt)))),
                part_end=(SEGMENT_END,),
                step_end=STEP_END,
                conclusion=CONCLUSION,
                probe=PROBE,
                probe_tokens=MAX_PROBE_TOKENS,
            )
            for problem in self.problems
        ]
        executor = Executor(
            models, self.task, scripts, reader=extract, draws=draws or self.draws, width=self.width
        )
        return executor.run(self.questions, method)

    def right(self, finished: Sequence[Finished]) -> list[float]:
        """Grade answers: 1 where one equals the problem's."""
        return [float(f.answer == self.problems[f.number].answer) for f in finished]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All traces of all questions, with what a plain vote over some of them gives."""

    archives: Archives
    traces: tuple[tuple[tuple[int, ...], ...], ...]
    """Decoded tokens by question and index."""
    curve: tuple[estimates.Point, ...]
    """Tokens and accuracy of a vote over 1 … samples traces."""
    answers: tuple[tuple[str | None, ...], ...]
    """What each trace answers, by question and index."""
    pass_at_all: float
    """Share of questions that some trace answers rightly."""


def everything(question: Question) -> Plan:
    """Draw all traces of a question and answer nothing."""
    yield [Sample(index=i) for i in range(question.samples)]
    return None


def draw_pool(setting: Setting) -> Pool:
    """Decode all traces of all questions."""
    archives = setting.archives()
    found = setting.run(setting.recording(archives), everything)
    traces = tuple(tuple(story.tokens for story in one.stories) for one in found)
    answers = tuple(tuple(extract(tokens) for tokens in of_one) for of_one in traces)
    truths = [problem.answer for problem in setting.problems]
    samples, count = setting.task.samples, len(truths)
    votes = [estimates.consensus(given, truth) for given, truth in zip(answers, truths, strict=True)]
    total = sum(len(tokens) for of_one in traces for tokens in of_one)
    right = [sum(answer == truth for answer in given) for given, truth in zip(answers, truths, strict=True)]
    return Pool(
        archives=archives,
        traces=traces,
        answers=answers,
        curve=tuple(
            ((k + 1) * total / (samples * count), fmean(v[k] for v in votes)) for k in range(samples)
        ),
        pass_at_all=fmean(estimates.pass_at_k(samples, r, samples) for r in right),
    )
