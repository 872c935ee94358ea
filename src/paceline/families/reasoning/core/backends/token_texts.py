"""Tokens of a model that is only known by the texts it writes: numbers for texts, and what a stream's pieces are.

The rest of the family works with whole numbers. Each distinct text gets the next number, so numbers mean nothing from
one process to the next, and texts do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

END = 0
"""The end of a text, which has no letters."""
SILENT = 1
"""A token without letters that is not the end: a part of a letter whose text came with another token."""


class Texts:
    """Numbers of texts, given in the order in which these are first seen.

    Args:
        known: All texts of another one, by their numbers.
    """

    def __init__(self, known: Sequence[str] = ("", "")) -> None:
        self._texts = list(known)
        self._numbers: dict[str, int] = {text: number for number, text in enumerate(known) if number > SILENT}
        self._numbers[""] = SILENT

    @property
    def known(self) -> tuple[str, ...]:
        """Return all texts, by their numbers."""
        return tuple(self._texts)

    def number(self, text: str) -> int:
        """Return a text's number."""
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def text(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens.

        Raises:
            ValueError: A token is none.
        """
        tokens = list(tokens)
        unknown = [token for token in tokens if not 0 <= token < len(self._texts)]
        if unknown:
            raise ValueError(f"no token {unknown[0]}; there are {len(self._texts)}")
        return "".join(self._texts[token] for token in tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one message of a stream brought."""

    texts: tuple[str, ...]
    """Of its tokens."""
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    finish: str | None
    """Why the stream ends, where it does: ``stop``, ``length`` or ``content_filter``."""
    has_end: bool
    """Whether the last token is the end of the text."""


def part_of(message: Any, with_logprobs: bool) -> Part | None:
    """Read one message of a stream of completions; None where it brings no text, as one of usage alone.

    Raises:
        ValueError: It is not what the interface says; in words.
    """
    choices = getattr(message, "choices", None)
    if not isinstance(choices, list):
        raise ValueError("a message without a list 'choices'")
    if not choices:
        return None
    text, finish = getattr(choices[0], "text", None), getattr(choices[0], "finish_reason", None)
    if not isinstance(text, str):
        raise ValueError(f"choices[0].text is {type(text).__name__}, and not text")
    if finish is not None and not isinstance(finish, str):
        raise ValueError(f"choices[0].finish_reason is {type(finish).__name__}, and not text")
    if not with_logprobs:
        texts = (text,) if text else ()
        nothing = (0.0,) * len(texts)
        return Part(texts=texts, logprobs=nothing, entropies=nothing, finish=finish, has_end=False)
    given = getattr(choices[0], "logprobs", None)
    if given is None:
        if text:
            raise ValueError("text without logprobs")
        return Part(texts=(), logprobs=(), entropies=(), finish=finish, has_end=False)
    return _measured(given, text, finish)


def _measured(given: Any, text: str, finish: str | None) -> Part:
    tokens, logprobs = getattr(given, "tokens", None), getattr(given, "token_logprobs", None)
    if not isinstance(tokens, list) or not isinstance(logprobs, list) or len(tokens) != len(logprobs):
        raise ValueError("choices[0].logprobs has not one of token_logprobs for each of tokens")
    if not all(isinstance(one, str) for one in tokens) or not all(map(_is_logprob, logprobs)):
        raise ValueError("choices[0].logprobs holds what is no token, or no logarithm of a probability")
    if text and not tokens:
        raise ValueError("text without logprobs")
    tops = getattr(given, "top_logprobs", None) or [None] * len(tokens)
    if len(tops) != len(tokens):
        raise ValueError("choices[0].logprobs has not one of top_logprobs for each of tokens")
    # Letters of several tokens come with one of them: their text is the message's, whatever each token calls itself.
    whole = "".join(tokens) == text
    has_end = finish == "stop" and bool(tokens) and "".join(tokens[:-1]) == text
    named = tuple(tokens) if whole else (*tokens[:-1], "") if has_end else (text, *("" for _ in tokens[1:]))
    return Part(
        texts=named,
        logprobs=tuple(float(one) for one in logprobs),
        entropies=tuple(entropy(top, float(one)) for top, one in zip(tops, logprobs, strict=True)),
        finish=finish,
        has_end=has_end,
    )


def entropy(top: Mapping[str, float] | None, logprob: float) -> float:
    """Return what the likeliest tokens say of an entropy, in nats: all others count as one token, so it is a least.

    Args:
        top: Logarithms of probabilities of the likeliest tokens; None or nothing leaves the drawn one alone.
        logprob: Of the drawn token.

    Raises:
        ValueError: These are no logarithms of probabilities.
    """
    values = list(top.values()) if top else [logprob]
    if not all(map(_is_logprob, values)):
        raise ValueError("top_logprobs holds what is no logarithm of a probability")
    # All unseen tokens as one: merging outcomes never raises an entropy, so this is a lower bound.
    shares = [math.exp(value) for value in values]
    rest = 1.0 - sum(shares)
    return -sum(share * math.log(share) for share in (*shares, rest) if share > 0.0)


def scores(
    tokens: Sequence[str], logprobs: Sequence[float | None], wanted: Sequence[str], begin: int
) -> list[float]:
    """Return the log-probability of each wanted text from the tokens that a server made of all of them.

    Args:
        tokens: Of the whole text and of what follows.
        logprobs: Theirs.
        wanted: Texts that follow each other.
        begin: Letters before them.

    Raises:
        ValueError: The server's tokens lie across the ends of these texts.
    """
    ends = [begin]
    for text in wanted:
        ends.append(ends[-1] + len(text))
    found = [0.0] * len(wanted)
    place, at = 0, 0
    for token, logprob in zip(tokens, logprobs, strict=True):
        after = at + len(token)
        if at >= ends[-1]:
            break
        if after > begin:
            # Empty texts have no letters and are passed over; their score stays 0.
            while after > ends[place + 1] and at >= ends[place + 1]:
                place += 1
            if at < ends[place] or after > ends[place + 1] or logprob is None:
                raise ValueError(f"the server's token '{token}' lies across two texts")
            found[place] += logprob
        at = after
    if at < ends[-1]:
        raise ValueError("the server echoed less than it was given")
    return found


def _is_logprob(value: Any) -> bool:
    # A little above 0, as servers round; booleans are whole numbers in Python, and no logarithms.
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value <= 1e-6
