"""The embedded reasoner's problems: branches of modular arithmetic that are summed, in ten levels.

A problem of level n takes n operations: each branch is a chain ``v op c op c …`` modulo 19, read from left to right,
and the results of the branches are added. ``Q T1 7 + 15 * 3 T2 4 - 8 ?`` is one of level 4: three operations in two
branches and one sum. Branches do not depend on each other, so they can be worked out at the same time.

A trace writes every step out, as segments that end in ``;``: a branch ``T2 4 - 8 = 15 ;``, then, where there are
several, the sum ``S 15 + 9 = 5 ;`` in the order in which the branches were done. After a full pass comes either ``W``
and another one, a self-check, or ``A``, the answer and the end. After ``A`` at any other place a trained reasoner
names what it believes by then.

Only ``random.Random.random`` is drawn from: Python promises its stream across versions, of the other methods it does
not.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of

MODULUS = 19
LEVELS = tuple(range(1, 11))
MAX_BRANCHES = 4
OPERATORS = ("+", "-", "*")

VOCABULARY: tuple[str, ...] = (
    *(str(n) for n in range(MODULUS)),
    *OPERATORS,
    *(f"T{n + 1}" for n in range(MAX_BRANCHES)),
    *("S", "W", "A", "Q", "?", ";", "=", "PAD", "EOS"),
)
"""Symbols by token; a number is its own token."""

TOKENS = {symbol: token for token, symbol in enumerate(VOCABULARY)}
END = TOKENS["EOS"]
PADDING = TOKENS["PAD"]
ANSWER = TOKENS["A"]
CHECK = TOKENS["W"]
SEGMENT_END = TOKENS[";"]
STEP_END = (TOKENS["="],)
"""A step ends where a result has to be known, so that the next one's first token is that result."""
CONCLUSION = (TOKENS["S"],)
"""What follows several branches begins with their sum."""

PROBE: tuple[int, ...] = (ANSWER,)
"""Forced tokens after which a trace names its present answer."""
MAX_PROBE_TOKENS = 2
"""The answer, and the end."""

SPLIT_KEY = b"paceline reasoning problems"
HELD_OUT_SHARE = 4
"""One in this many problems is held out."""
MAX_ATTEMPTS = 20_000
"""Problems drawn for one that is new; level 1 has only about 250 held-out ones."""

Branch = tuple[int, tuple[tuple[str, int], ...]]
"""Where a chain starts, and its operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question, with its answer."""

    key: int
    """Digest of the prompt: equal in every draw that contains the problem."""
    level: int
    """Number of operations."""
    prompt: tuple[int, ...]
    answer: str


def encode(text: str) -> tuple[int, ...]:
    """Return the tokens of symbols that are separated by spaces.

    Raises:
        ValueError: A symbol is not in the vocabulary.
    """
    unknown = [symbol for symbol in text.split() if symbol not in TOKENS]
    if unknown:
        raise ValueError(f"'{unknown[0]}' is not in the vocabulary")
    return tuple(TOKENS[symbol] for symbol in text.split())


def decode(tokens: Sequence[int]) -> str:
    """Return the symbols of tokens, separated by spaces.

    Raises:
        ValueError: A token is not in the vocabulary.
    """
    outside = [token for token in tokens if not 0 <= token < len(VOCABULARY)]
    if outside:
        raise ValueError(f"token {outside[0]} is not in the vocabulary of {len(VOCABULARY)}")
    return " ".join(VOCABULARY[token] for token in tokens)


def extract(tokens: Sequence[int]) -> str | None:
    """Return the answer of a trace that ends in ``A``, a number and the end; None for every other one."""
    if len(tokens) < 3 or tokens[-1] != END or tokens[-3] != ANSWER:
        return None
    return VOCABULARY[tokens[-2]] if 0 <= tokens[-2] < MODULUS else None


def applied(left: int, operator: str, right: int) -> int:
    """Return one operation's result modulo 19."""
    results = {"+": left + right, "-": left - right, "*": left * right}
    return results[operator] % MODULUS


def branches(prompt: Sequence[int]) -> tuple[Branch, ...]:
    """Return the chains of a prompt in their order, T1 first.

    Raises:
        ValueError: It is not a prompt of these problems.
    """
    symbols = decode(prompt).split()
    starts = [place for place, symbol in enumerate(symbols) if symbol.startswith("T")]
    if not starts or starts[0] != 1 or symbols[0] != "Q" or symbols[-1] != "?":
        raise ValueError(f"no problem: {' '.join(symbols)}")
    found = []
    for start, stop in zip(starts, (*starts[1:], len(symbols) - 1), strict=True):
        chain = symbols[start + 1 : stop]
        numbers, operators = chain[0::2], chain[1::2]
        if len(chain) % 2 == 0 or not all(map(str.isdigit, numbers)) or not set(operators) <= set(OPERATORS):
            raise ValueError(f"no chain: {' '.join(chain)}")
        operations = tuple((op, int(number)) for op, number in zip(operators, numbers[1:], strict=True))
        found.append((int(numbers[0]), operations))
    return tuple(found)


def draw(seed: int, count: int, *, levels: Sequence[int], held_out: bool = True) -> list[Problem]:
    """Return distinct problems, the levels in turn; fewer of the same seed are the beginning of more.

    Held-out problems and those to train on never meet, whatever the seeds: a digest decides.

    Raises:
        ValueError: A level is unknown, or has too few problems.
    """
    if count < 0 or not levels:
        raise ValueError(f"{number_of(count, 'problem')} of {len(levels)} levels")
    rng = random.Random(seed)
    drawn: dict[int, Problem] = {}
    while len(drawn) < count:
        # By the number drawn: levels stay in turn, and fewer problems are the beginning of more.
        level = levels[len(drawn) % len(levels)]
        attempts = (one_problem(rng, level, held_out=held_out) for _ in range(MAX_ATTEMPTS))
        found = next((problem for problem in attempts if problem.key not in drawn), None)
        if found is None:
            raise ValueError(f"level {level} has no problem beyond {len(drawn)} drawn ones")
        drawn[found.key] = found
    return list(drawn.values())


def one_problem(rng: random.Random, level: int, *, held_out: bool, max_operand: int = MODULUS - 1) -> Problem:
    """Return a problem of a level from one side of the split; chains start anywhere, operands can be bounded.

    Raises:
        ValueError: The level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level}; there are {LEVELS[0]} to {LEVELS[-1]}")
    while True:
        chains = _random_branches(rng, level, max_operand)
        if _is_held_out(chains) == held_out:
            break
    text = " ".join(f"T{n + 1} {_chain_text(chain)}" for n, chain in enumerate(chains))
    prompt = encode(f"Q {text} ?")
    total = sum(_chain_result(chain) for chain in chains) % MODULUS
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
    return Problem(key=key, level=level, prompt=prompt, answer=str(total))


def _random_branches(rng: random.Random, level: int, max_operand: int) -> tuple[Branch, ...]:
    """Return chains whose operations and sums are as many as the level says."""
    count = 1 + int(rng.random() * min(MAX_BRANCHES, (level + 1) // 2))
    # A branch has one operation at least, and n branches need n − 1 sums: what is left is spread at random.
    lengths = [1] * count
    for _ in range(level - (count - 1) - count):
        lengths[int(rng.random() * count)] += 1
    starts = [int(rng.random() * MODULUS) for _ in lengths]
    return tuple(
        (start, _random_operations(rng, n, max_operand)) for start, n in zip(starts, lengths, strict=True)
    )


def _random_operations(rng: random.Random, count: int, max_operand: int) -> tuple[tuple[str, int], ...]:
    """Return operations; no operand is 0, whose product would forget every slip before it."""
    return tuple(
        (OPERATORS[int(rng.random() * len(OPERATORS))], 1 + int(rng.random() * max_operand))
        for _ in range(count)
    )


def _chain_text(chain: Branch) -> str:
    start, operations = chain
    return " ".join((str(start), *(f"{operator} {operand}" for operator, operand in operations)))


def _chain_result(chain: Branch) -> int:
    value, operations = chain
    for operator, operand in operations:
        value = applied(value, operator, operand)
    return value


def _is_held_out(chains: tuple[Branch, ...]) -> bool:
    """Tell the side of the split; problems that differ in the order of their branches only are on the same one."""
    # Sorted, or a problem to train on could be a held-out one with its branches in another order.
    canonical = " T ".join(sorted(_chain_text(chain) for chain in chains))
    digest = hashlib.blake2b(canonical.encode(), key=SPLIT_KEY, digest_size=4).digest()
    return int.from_bytes(digest) % HELD_OUT_SHARE == 0
