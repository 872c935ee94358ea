"""What every language model offers to the family: traces that are begun, forked, advanced in one batch and dropped.

Techniques never hold a model. They yield requests (``requests.py``); the executor turns these into calls of this
contract, counts every token that a model decodes, and lets the model batch whatever is under way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What decides a trace's tokens beside its prompt: equal draws give equal tokens, whatever shares their batch."""

    key: tuple[int, ...]
    """Integers that name the stream of random numbers; its t-th number decides the t-th decoded token."""
    temperature: float
    """Of sampling; 0 takes the likeliest token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a model decoded for one trace since it was asked to go on."""

    trace: int
    tokens: tuple[int, ...]
    """Decoded tokens, with the end of sequence where it came."""
    logprobs: tuple[float, ...]
    """Natural logarithm of each token's probability at temperature 1."""
    entropies: tuple[float, ...]
    """Entropy in nats of the distribution at temperature 1 that each token was drawn from."""
    ended: bool
    """Whether the trace has ended, by an end of sequence or at the model's longest context."""


Continuation = tuple[Sequence[int], Sequence[int]]
"""A prompt, and tokens behind it whose probabilities are asked for."""


class LanguageModel(Protocol):
    """A model that decodes many traces at once."""

    @property
    def identity(self) -> str:
        """Name and digest of the weights: what recorded traces belong to."""

    @property
    def context(self) -> int:
        """Most tokens of a trace, its prompt included."""

    @property
    def num_parameters(self) -> int | None:
        """Parameters, which a token's work is proportional to; None where they are not known."""

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a trace after a prompt and return its handle; nothing is decoded yet."""

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a trace that continues another one's present tokens by forced ones; the other one is left as it is.

        The trace must not be under way.
        """

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Open a trace that continues another one's present tokens by those of its forks, then by forced ones.

        No token of them is computed again: keys and values are put behind each other with the positions at which they
        were written, and the forced ones follow the longest fork. All are left as they are.

        Raises:
            ValueError: A trace is under way, has been merged itself, or is no fork of the first; nothing is forced; or
                the model cannot share keys and values.
        """

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Open traces that continue another one's present tokens by an opening each, and see each other's tokens.

        What one decodes is visible to the others from the next token on, with no key or value computed again.

        Raises:
            ValueError: The trace is under way, merged or shared itself; there are no openings, or not as many draws; or
                the model cannot share keys and values.
        """

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for up to this many tokens more, or up to one of the stopping ones; ``poll`` tells when they are there.

        Raises:
            ValueError: The trace has ended, or is under way.
        """

    def poll(self) -> list[Piece]:
        """Decode at least one token of every trace under way; return what was asked for and is complete."""

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return the log-probability of each token of each continuation, at temperature 1."""

    def drop(self, trace: int) -> None:
        """Forget a trace and its cache; when it is under way, decoding stops."""
