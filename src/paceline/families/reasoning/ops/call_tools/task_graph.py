"""Questions whose answers take several calls of tools: who depends on whom, how long each takes, what comes out.

Tools compute for real: each one's result follows from its arguments, so a call with wrong arguments, or one left out,
ends in another answer. The language model is a script that knows the steps; its times are those of a model that needs a
moment before its first token and then writes steps at an even pace.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.families.reasoning.api.tool_calls import Step

MODULUS = 10_007
SPREAD = 0.5
"""Standard deviation of the logarithm of tools' durations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of the language model, in seconds."""

    first_s: float
    """Of an invocation before it has written anything."""
    step_s: float
    """Of writing one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One question."""

    steps: tuple[Step, ...]
    """Each depends on earlier ones alone."""
    durations_s: tuple[float, ...]
    factors: tuple[int, ...]
    """What each tool multiplies the sum of its arguments by, before it adds its number."""
    first_plan: int
    """Steps that can be planned at once; the others only when those have their results."""

    def result(self, number: int, arguments: Sequence[int]) -> int:
        """Return what a tool returns."""
        return (self.factors[number] * (1 + sum(arguments)) + number) % MODULUS

    def answer(self, results: Mapping[int, int]) -> int:
        """Return the answer that results give."""
        return sum((number + 1) * results[number] for number in sorted(results)) % MODULUS

    def truth(self) -> int:
        """Return the right answer."""
        results: dict[int, int] = {}
        for step in self.steps:
            results[step.number] = self.result(step.number, [results[d] for d in step.depends])
        return self.answer(results)

    @property
    def plans(self) -> tuple[tuple[Step, ...], ...]:
        """Steps of each plan."""
        parts = (self.steps[: self.first_plan], self.steps[self.first_plan :])
        return tuple(part for part in parts if part)

    def critical_s(self, times: Times) -> float:
        """Return how long it takes if every call begins when its step is written and its arguments are there.

        One invocation reads the results of a plan, and writes the next plan or the answer. Who asks for a join and for
        the next plan apart takes ``first_s`` more for every plan but the first.
        """
        now, ended = 0.0, dict[int, float]()
        for plan in self.plans:
            written = now + times.first_s
            for step in plan:
                written += times.step_s
                begin = max([written, *(ended[d] for d in step.depends)])
                ended[step.number] = begin + self.durations_s[step.number]
            now = max(written, *(ended[step.number] for step in plan))
        return now + times.first_s

    def sequential_s(self, times: Times) -> float:
        """Return how long it takes one call after another, with a thought before each and one for the answer."""
        return sum(self.durations_s) + len(self.steps) * times.step_s + (len(self.steps) + 1) * times.first_s


def draw_work(seed: int, *, steps: int, depth: int, tool_s: float, replanned: bool) -> Work:
    """Return a question.

    Args:
        seed: Of the draw.
        steps: Calls.
        depth: Layers of calls; each call but those of the first layer depends on one or two of the layer before.
        tool_s: Median duration of a call.
        replanned: Whether the last layer can be planned only when all others have their results.
    """
    rng = random.Random(seed)
    layers = [sorted(range(steps))[i * steps // depth : (i + 1) * steps // depth] for i in range(depth)]
    made = []
    for layer, numbers in enumerate(layers):
        for number in numbers:
            before = layers[layer - 1] if layer else []
            count = min(len(before), 1 + int(rng.random() * 2))
            found = sorted(before, key=lambda _: rng.random())[:count]
            made.append(Step(number=number, depends=tuple(sorted(found))))
    return Work(
        steps=tuple(made),
        durations_s=tuple(tool_s * math.exp(rng.gauss(0, SPREAD)) for _ in made),
        factors=tuple(2 + int(rng.random() * (MODULUS - 3)) for _ in made),
        first_plan=steps - len(layers[-1]) if replanned and depth > 1 else steps,
    )
