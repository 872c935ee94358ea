"""The teacher whose traces the reasoner learns from: it makes mistakes, checks itself, and can be interrupted.

A model that only ever saw right steps leaves a vote nothing to correct. So the noisy teacher errs in two ways. A slip
is any wrong result, new every time: a vote averages it out. A misconception is one wrong result that belongs to an
operand pair for good, and is used half of the time: a vote keeps some of these. Checks are passes of the same making,
so their agreement is evidence, and no proof. What is measured on such a model is measured on errors that were put
there.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from paceline.families.reasoning.core.problems.embedded import (
    ANSWER,
    CHECK,
    END,
    MODULUS,
    SEGMENT_END,
    TOKENS,
    Branch,
    Problem,
    applied,
    branches,
)

MAX_PASSES = 4
CUT_SHARE = 0.25
"""Of examples that are interrupted and answer at once."""
EQUALS, SUM, PLUS = TOKENS["="], TOKENS["S"], TOKENS["+"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """How traces are made, and marred."""

    name: str
    slips: float
    """Share of sums and differences with an arbitrary wrong result; of products, twice as many."""
    misconceived: float
    """Share of operand pairs that have a wrong result of their own."""
    misconceptions: float
    """How often that one is used where there is one."""
    first_check: float = 0.6
    """Share of traces with a second pass."""
    overthinking: float = 0.15
    """Chance of one more pass after two have agreed."""


NOISY = Teacher(name="noisy", slips=0.10, misconceived=0.08, misconceptions=0.5)
CLEAN = Teacher(name="almost clean", slips=0.011, misconceived=0.0, misconceptions=0.0)
"""Of steps that are equally often sums, differences and products, 1.5 % are wrong."""
EXACT = Teacher(name="exact", slips=0.0, misconceived=0.0, misconceptions=0.0, first_check=0.0)
"""Teaches arithmetic before anything else: single passes, in which no result can be copied from an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sequence to learn from."""

    tokens: tuple[int, ...]
    learned: tuple[bool, ...]
    """Whether a token counts in the loss: the prompt does not, nor does an interruption's ``A``, which is forced."""


def example(problem: Problem, teacher: Teacher, rng: random.Random) -> Example:
    """Return a trace after its prompt; a quarter of them is cut anywhere and gives its final answer at once."""
    written = trace(problem, teacher, rng)
    free = [True] * len(written)
    if rng.random() < CUT_SHARE:
        # Before the last three, which are A, the answer and the end; after a cut they are what a probe will ask for.
        cut = int(rng.random() * (len(written) - 3))
        written = [*written[:cut], *written[-3:]]
        # A is forced by whoever interrupts: learned, the model would interrupt itself.
        free = [*free[:cut], False, True, True]
    hidden = [False] * len(problem.prompt)
    return Example(tokens=(*problem.prompt, *written), learned=(*hidden, *free))


def trace(problem: Problem, teacher: Teacher, rng: random.Random) -> list[int]:
    """Return a trace's tokens: passes, checks between them, the answer of the plurality, the end."""
    chains = branches(problem.prompt)
    written: list[int] = []
    results: list[int] = []
    while True:
        tokens, result = _full_pass(chains, teacher, rng)
        written += tokens
        results.append(result)
        if len(results) == MAX_PASSES or rng.random() >= _urge_to_check(results, teacher):
            break
        written.append(CHECK)
    return [*written, ANSWER, _plurality(results), END]


def step(left: int, operator: str, right: int, teacher: Teacher, rng: random.Random) -> int:
    """Return the teacher's result of one operation."""
    right_result = applied(left, operator, right)
    belief = misconception(left, operator, right, teacher.misconceived)
    if belief is not None and rng.random() < teacher.misconceptions:
        return belief
    if rng.random() < teacher.slips * (2 if operator == "*" else 1):
        return (right_result + 1 + int(rng.random() * (MODULUS - 1))) % MODULUS
    return right_result


def misconception(left: int, operator: str, right: int, share: float) -> int | None:
    """Return the wrong result that belongs to an operation, if one does: a digest decides, so it never changes."""
    digest = hashlib.blake2b(f"misconception {left} {operator} {right}".encode(), digest_size=8).digest()
    # By a digest and no generator: a misconception is the same in every trace, which is what a vote cannot average
    # out.
    if int.from_bytes(digest[:4]) >= share * 2**32:
        return None
    return (applied(left, operator, right) + 1 + int.from_bytes(digest[4:]) % (MODULUS - 1)) % MODULUS


def _full_pass(chains: tuple[Branch, ...], teacher: Teacher, rng: random.Random) -> tuple[list[int], int]:
    """Return one pass's tokens and its result; branches come in any order, and are added in that order."""
    order = sorted(range(len(chains)), key=lambda _: rng.random())
    written: list[int] = []
    results: list[int] = []
    for branch in order:
        value, operations = chains[branch]
        written += [TOKENS[f"T{branch + 1}"], value]
        for operator, operand in operations:
            value = step(value, operator, operand, teacher, rng)
            written += [TOKENS[operator], operand, EQUALS, value]
        written.append(SEGMENT_END)
        results.append(value)
    total = results[0]
    if len(results) > 1:
        written += [SUM, total]
        for value in results[1:]:
            total = step(total, "+", value, teacher, rng)
            written += [PLUS, value, EQUALS, total]
        written.append(SEGMENT_END)
    return written, total


def _urge_to_check(results: list[int], teacher: Teacher) -> float:
    """Return the chance of another pass."""
    if len(results) == 1:
        return teacher.first_check
    # Until two passes agree it always checks again.
    return teacher.overthinking if len(set(results)) < len(results) else 1.0


def _plurality(results: list[int]) -> int:
    """Return the commonest result; of several, the one that came last."""
    return max(reversed(results), key=results.count)
