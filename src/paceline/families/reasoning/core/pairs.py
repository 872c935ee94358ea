"""A judge that we trained: will two unfinished traces of one question come to the same answer?

It reads what each has worked out so far, as results of branches, of single operations and of the sum, and never works
anything out itself. What the two have in common and what they differ in goes through a small perceptron. It was
trained on traces of the weak reasoner on problems that are not held out (``pair_training.py``), with a focal loss and
both kinds of pairs equally often (DeepPrune, 2025, section on the judge model).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.families.reasoning.core.problems.embedded import MODULUS, TOKENS, VOCABULARY, branches

FILE = Path(__file__).parent / "judge.json"
FEATURES = (
    *("branches_alike", "branches_unlike", "branches_unknown"),
    *("results_alike", "results_unlike", "results_unknown"),
    *("sums_alike", "sums_unlike", "sums_unknown"),
    *("operations", "products", "branches"),
)

_EQUALS, _END, _SUM, _CHECK = (TOKENS[symbol] for symbol in ("=", ";", "S", "W"))
_NAMES = {TOKENS[symbol]: number for number, symbol in enumerate(s for s in VOCABULARY if s[0] == "T")}


@dataclass(slots=True)
class Work:
    """What a trace has worked out, each thing as it was worked out last."""

    branches: dict[int, int] = field(default_factory=dict)
    """Finished ones by number."""
    results: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of operations, by branch and place."""
    total: int | None = None


def read_work(text: Sequence[int]) -> Work:
    """Return what a trace has worked out; what makes no sense is passed over."""
    work = Work()
    branch, results = -1, list[int]()
    for place, token in enumerate(text):
        # Whatever begins anew names no branch until the next name: results of the sum belong to none.
        if token in _NAMES or token in (_SUM, _CHECK):
            branch, results = _NAMES.get(token, -1), []
        elif token == _EQUALS and place + 1 < len(text) and text[place + 1] < MODULUS:
            results.append(text[place + 1])
            if branch >= 0:
                # By branch and place, as branches come in any order; a later pass overwrites an earlier one.
                work.results[branch, len(results)] = results[-1]
        elif token == _END and results:
            if branch >= 0:
                work.branches[branch] = results[-1]
            else:
                work.total = results[-1]
            results = []
    return work


def compare_work(prompt: Sequence[int], one: Work, other: Work) -> list[float]:
    """Return the features of a pair, in the order of ``FEATURES``."""
    chains = branches(prompt)
    operations = [op for _, chain in chains for op, _ in chain]
    places = [(b, i + 1) for b, (_, chain) in enumerate(chains) for i in range(len(chain))]
    found: list[float] = []
    for pairs in (
        [(one.branches.get(b), other.branches.get(b)) for b in range(len(chains))],
        [(one.results.get(at), other.results.get(at)) for at in places],
        [(one.total, other.total)],
    ):
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        alike = sum(a == b for a, b in known)
        # Shares and not counts, so that problems of all sizes look alike to the perceptron.
        found += [x / len(pairs) for x in (alike, len(known) - alike, len(pairs) - len(known))]
    return [*found, len(operations) / 10, operations.count("*") / 10, len(chains) / 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJudge:
    """A perceptron with one hidden layer, (features, hidden) and (hidden,)."""

    hidden_FH: NDArray[np.float64]
    hidden_bias_H: NDArray[np.float64]
    out_H: NDArray[np.float64]
    out_bias: float

    def probability(self, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
        """Return how likely two traces are to come to one answer, given the prompt and what each has written."""
        features = compare_work(prompt, read_work(one), read_work(other))
        hidden = np.tanh(np.asarray(features) @ self.hidden_FH + self.hidden_bias_H)
        return float(1.0 / (1.0 + np.exp(-(hidden @ self.out_H + self.out_bias))))


@lru_cache(maxsize=1)
def load_judge() -> PairJudge:
    """Return the kept judge."""
    kept = json.loads(FILE.read_text())["weights"]
    return PairJudge(
        hidden_FH=np.array(kept["hidden"]),
        hidden_bias_H=np.array(kept["hidden_bias"]),
        out_H=np.array(kept["out"]),
        out_bias=float(kept["out_bias"]),
    )
