"""What a reasoner can do on held-out problems: alone, by vote, and how fast."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from paceline.families.reasoning.core.estimates import consensus
from paceline.families.reasoning.core.language import Draw, LanguageModel
from paceline.families.reasoning.core.problems.embedded import Problem, extract

MAX_OPEN = 256
"""Traces decoded at once: more fill the caches of a processor and gain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Measured figures; shares are of problems, or of samples."""

    identity: str
    problems: int
    samples: int
    temperature: float
    pass_at_1: float
    """Share of samples that are right."""
    pass_at_all: float
    """Share of problems that any sample solves."""
    majority: dict[int, float]
    """Share of problems that a vote over so many of the samples solves, exact over all subsets; equals share."""
    pair_agreement: float
    """Share of pairs of a problem's samples with one answer; what cannot be read agrees with nothing."""
    readable: float
    """Share of samples with an answer."""
    pass_at_1_by_level: dict[int, float]
    majority_by_level: dict[int, float]
    """A vote over all samples."""
    mean_tokens: float
    """Decoded ones of a sample."""
    rate_tokens_per_s: float


def evaluate(
    model: LanguageModel, problems: Sequence[Problem], samples: int, temperature: float
) -> Evaluation:
    """Sample every problem and count."""
    began = time.perf_counter()
    answers, num_tokens = sampled(model, problems, samples, temperature)
    elapsed_s = time.perf_counter() - began
    right = {p.key: [answer == p.answer for answer in answers[p.key]] for p in problems}
    votes = {p.key: consensus(answers[p.key], p.answer) for p in problems}
    by_level = {
        level: [p.key for p in problems if p.level == level] for level in sorted({p.level for p in problems})
    }
    sizes = sorted({k for k in (1, 2, 4, 8, 16, 32, samples) if k <= samples})
    return Evaluation(
        identity=model.identity,
        problems=len(problems),
        samples=samples,
        temperature=temperature,
        pass_at_1=_mean(flag for flags in right.values() for flag in flags),
        pass_at_all=_mean(any(flags) for flags in right.values()),
        majority={k: _mean(votes[p.key][k - 1] for p in problems) for k in sizes},
        pair_agreement=_mean(
            a == b and a is not None for given in answers.values() for a, b in combinations(given, 2)
        ),
        readable=_mean(answer is not None for given in answers.values() for answer in given),
        pass_at_1_by_level={
            n: _mean(flag for key in keys for flag in right[key]) for n, keys in by_level.items()
        },
        majority_by_level={n: _mean(votes[key][-1] for key in keys) for n, keys in by_level.items()},
        mean_tokens=round(num_tokens / (len(problems) * samples), 1),
        rate_tokens_per_s=round(num_tokens / elapsed_s),
    )


def sampled(
    model: LanguageModel, problems: Sequence[Problem], samples: int, temperature: float
) -> tuple[dict[int, list[str | None]], int]:
    """Return each problem's answers, by key and in the order of samples, and the number of decoded tokens."""
    answers: dict[int, list[str | None]] = {problem.key: [None] * samples for problem in problems}
    # Reversed, as it is popped from its end: samples of a problem are begun together.
    waiting = [(problem, index) for problem in problems for index in range(samples)][::-1]
    open_traces: dict[int, tuple[int, int]] = {}
    num_tokens = 0
    while waiting or open_traces:
        while waiting and len(open_traces) < MAX_OPEN:
            problem, index = waiting.pop()
            trace = model.begin(problem.prompt, Draw(key=(problem.key, index), temperature=temperature))
            open_traces[trace] = (problem.key, index)
            model.advance(trace, model.context)
        for piece in model.poll():
            key, index = open_traces.pop(piece.trace)
            answers[key][index] = extract(piece.tokens)
            num_tokens += len(piece.tokens)
            model.drop(piece.trace)
    return answers, num_tokens


def _mean(shares: Iterable[float]) -> float:
    values = list(shares)
    return round(sum(values) / len(values), 4) if values else 0.0
