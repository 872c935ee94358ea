"""The launch's own traces of every question: what techniques would draw, what replays draw from, the plain vote.

Techniques draw the same traces by their indices, so they share all luck: what differs is what they do with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning.api.requests import Plan, Question, Sample
from paceline.families.reasoning.core import estimates
from paceline.families.reasoning.core.block.setting import Archives, Setting


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
    num_right: tuple[int, ...]
    """Traces that answer rightly, by question."""
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
    answers = tuple(
        tuple(setting.reading.answer(number, tokens) for tokens in of_one)
        for number, of_one in enumerate(traces)
    )
    # From here on techniques read: what they come across must not name answers for each other.
    setting.reading.freeze()
    graded = [_graded(setting, number, given) for number, given in enumerate(answers)]
    samples, count = setting.task.samples, len(traces)
    votes = [estimates.consensus(given, RIGHT) for given in graded]
    total = sum(len(tokens) for of_one in traces for tokens in of_one)
    return Pool(
        archives=archives,
        traces=traces,
        answers=answers,
        # In expectation a random subset of k samples costs k times the mean trace.
        curve=tuple(
            ((k + 1) * total / (samples * count), fmean(v[k] for v in votes)) for k in range(samples)
        ),
        num_right=tuple(given.count(RIGHT) for given in graded),
        pass_at_all=fmean(estimates.pass_at_k(samples, given.count(RIGHT), samples) for given in graded),
    )


RIGHT = ""
"""Stands for every answer that is right; no answer has this text."""


def _graded(setting: Setting, number: int, answers: tuple[str | None, ...]) -> list[str | None]:
    # All right texts are one vote: two ways of writing the truth must not compete with each other.
    right = {a for a in set(answers) if a is not None and setting.reading.right(number, a)}
    return [RIGHT if a in right else a for a in answers]
