"""What a server says of the prompts that it read, held against what it was sent.

A server counts the tokens of each prompt, and how many of them it found in its cache, in the usage of an answer. The
first says whether prompts were as long as they were meant to be; the second whether it had read them before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from paceline.base.counting import number_of
from paceline.families.serving.core.load.calls import Call, prompt_text
from paceline.families.serving.core.load.log.outcomes import Outcome

SLACK_TOKENS = 32
"""Tokens that a chat's template may add to a prompt without a word about it."""
LEAST_SLACK_TOKENS = 4
"""Tokens that a prompt may lack without a word about it: how many words make up a length is a whole number."""
SLACK_SHARE = 0.1
"""Share of a prompt's tokens by which lengths, and what was found in a cache, may be off without a word about it."""


def shared_beginnings(calls: Sequence[Call]) -> dict[int, float]:
    """Return which share of each prompt, 0 to 1, another prompt of the same workload begins with, too.

    A prompt that carries on an earlier one shares all of it.
    """
    texts = {c.number: c.prompt if isinstance(c.prompt, tuple) else prompt_text(c.prompt) for c in calls}
    found = dict.fromkeys(texts, 0.0)
    for kind in (tuple, str):  # sorted, the longest common beginning is that with a neighbour
        ordered = sorted((text, n) for n, text in texts.items() if isinstance(text, kind))
        for (one, first), (other, second) in itertools.pairwise(ordered):
            common = _common(one, other)
            found[first] = max(found[first], common / max(len(one), 1))
            found[second] = max(found[second], common / max(len(other), 1))
    return found | {c.number: 1.0 for c in calls if c.carries}


def cached_share(outcomes: Sequence[Outcome]) -> float | None:
    """Return the share of prompt tokens that the server found in its cache; None where it does not say."""
    told = [o for o in outcomes if o.ok and o.cached_tokens is not None and o.prompt_tokens]
    read = sum(o.prompt_tokens or 0 for o in told)
    return sum(o.cached_tokens or 0 for o in told) / read if read else None


def unlike_asked(outcomes: Sequence[Outcome]) -> str | None:
    """Say that prompts had other lengths than were meant, by the server's count, or None."""
    # No prompt is empty: a server that says 0 does not count.
    told = [o for o in outcomes if o.ok and o.prompt_tokens and o.asked_prompt_tokens is not None]
    if not told:
        return None
    asked = sum(o.asked_prompt_tokens or 0 for o in told) / len(told)
    read = sum(o.prompt_tokens or 0 for o in told) / len(told)
    # A template adds tokens and takes none away.
    slack = SLACK_TOKENS if read > asked else LEAST_SLACK_TOKENS
    if abs(read - asked) <= max(slack, SLACK_SHARE * asked):
        return None
    return f"the server counts {number_of(read, 'token', form='.0f')} a prompt, where {asked:.0f} were meant"


def warmer_than_asked(outcomes: Sequence[Outcome], shared: Mapping[int, float] | None = None) -> str | None:
    """Say that the server had read prompts before that no other of the run begins with, or None.

    Args:
        outcomes: Of all calls.
        shared: What ``shared_beginnings`` says of them; None where that is not known, and any share is told.
    """
    told = [o for o in outcomes if o.ok and o.cached_tokens is not None and o.prompt_tokens]
    read = sum(o.prompt_tokens or 0 for o in told)
    cached = sum(o.cached_tokens or 0 for o in told)
    if not cached:
        return None
    found = f"{cached} of {read} prompt tokens came from the server's cache"
    if shared is None:
        return found
    explained = sum((o.prompt_tokens or 0) * shared.get(o.number, 0.0) for o in told)
    if cached - explained <= max(SLACK_TOKENS * len(told), SLACK_SHARE * read):
        return None
    return (
        f"{found}, though the run's prompts share {explained:.0f}: the server had read them before, and its times "
        "to first tokens are those of a warm cache"
    )


def told_of_prompts(outcomes: Sequence[Outcome], shared: Mapping[int, float] | None = None) -> Iterator[str]:
    """Yield what a person should know of the prompts, a sentence each."""
    yield from filter(None, (unlike_asked(outcomes), warmer_than_asked(outcomes, shared)))


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
