"""Which conversations of a file are asked for, and how long their answers are: vLLM's rules, with every drop counted.

``vllm bench serve`` (benchmarks/datasets, ShareGPT) shuffles the entries with two turns or more, takes the first turn
as the prompt and the length of the second as the answer's, and leaves out those with fewer than 4 tokens in either,
more than 1024 in the prompt or 2048 in both, special tokens included, until it has enough. The same seed gives the same
choice here, but for two things: a ``system`` turn goes with the prompt that follows it (there it is the prompt, and the
person's words are the answer), and nothing is sent twice where a file has too few (there it is).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.serving.core.workloads.conversations import (
    ASSISTANT,
    NO_CONVERSATION,
    ONE_TURN,
    SYSTEM,
    USER,
    Conversations,
    Entry,
)
from paceline.families.serving.core.workloads.text_tokens import Tokenizer

DROPPED = {
    NO_CONVERSATION: "the entry has neither 'conversations' nor 'messages'",
    ONE_TURN: "fewer than two turns",
    "no_text": "a turn has no text, or something beside it",
    "unknown_role": "a turn is of somebody who is neither person, model nor system",
    "short_prompt": "the prompt has fewer tokens than the least",
    "short_answer": "the answer has fewer tokens than the least",
    "long_prompt": "the prompt has more tokens than the most",
    "long_total": "prompt and answer, with all that was said before, have more tokens than the most",
    "no_answer": "nothing answers the prompt",
    "out_of_turn": "the same speaks twice, or the system in the middle",
    "begun_by_answer": "the conversation begins with an answer",
}
"""Why a conversation, or a turn of one, is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimits:
    """Tokens that prompts and answers may have; those of vLLM unless somebody says otherwise."""

    min_tokens: int = 4
    """Of a prompt, and of an answer."""
    max_prompt_tokens: int = 1024
    max_total_tokens: int = 2048
    """Of prompt and answer, with all that was said before."""

    def broken(self, prompt: int, answer: int, before: int) -> str | None:
        """Return which limit a turn breaks, the first in vLLM's order; None where it breaks none."""
        if prompt < self.min_tokens:
            return "short_prompt"
        if answer < self.min_tokens:
            return "short_answer"
        if prompt > self.max_prompt_tokens:
            return "long_prompt"
        return "long_total" if before + prompt + answer > self.max_total_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt, and the length of its answer."""

    messages: tuple[tuple[str, str], ...]
    """The prompt's, with the system's words before them."""
    tokens: tuple[int, ...]
    """Of the prompt, by the tokenizer."""
    answer_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is asked for."""

    sessions: tuple[tuple[Exchange, ...], ...]
    """Conversations, each with the exchanges that are asked for in turn."""
    facts: dict[str, Any]
    """For the record: what was read, and what was left out."""


def choose(
    file: Conversations,
    tokenizer: Tokenizer,
    *,
    requests: int,
    whole: bool = False,
    limits: LengthLimits | None = None,
    seed: int = 0,
    fewer: bool = False,
) -> Choice:
    """Choose the exchanges of a run.

    Args:
        file: What was read.
        tokenizer: Counts tokens.
        requests: How many exchanges.
        whole: Whether all turns of a conversation are taken, in place of the first two. Such a conversation ends before
            the first turn that breaks a limit or comes out of turn.
        limits: On lengths.
        seed: Of the order in which conversations are looked at.
        fewer: Whether fewer will do, but not none.

    Raises:
        UserError: The file has too few.
    """
    limits = limits or LengthLimits()
    dropped = Counter(e.reason for e in file.entries if e.reason in (NO_CONVERSATION, ONE_TURN))
    order = [e for e in file.entries if e.reason not in (NO_CONVERSATION, ONE_TURN)]
    random.Random(seed).shuffle(order)
    cut: Counter[str] = Counter()
    sessions: list[tuple[Exchange, ...]] = []
    taken = looked_at = unusual = 0
    for entry in order:
        if taken == requests:
            break
        looked_at += 1
        if entry.reason is not None:
            dropped[entry.reason] += 1
            continue
        if whole:
            exchanges, why = _all_turns(entry, tokenizer, limits)
        else:
            exchanges, why = _first_turns(entry, tokenizer, limits)
        if not exchanges:
            dropped[why or "no_answer"] += 1
            continue
        if why is not None:
            cut[why] += 1
        unusual += not whole and tuple(r for r, _ in entry.turns if r != SYSTEM)[:2] != (USER, ASSISTANT)
        kept = exchanges[: requests - taken]
        cut["enough"] += len(kept) < len(exchanges)
        sessions.append(kept)
        taken += len(kept)
    facts: dict[str, Any] = {
        "sha256": file.sha256,
        "conversations": len(file.entries),
        "looked_at": looked_at,
        "seed": seed,
        "turns": "all" if whole else "first",
        "sessions": len(sessions),
        "requests": taken,
        "left_out": dropped.total(),
        "dropped": dict(sorted((str(k), n) for k, n in dropped.items())),
        **({"ended_early": {k: n for k, n in sorted(cut.items()) if n}} if whole else {}),
        **({"other_speakers": unusual} if unusual else {}),
        "limits": asdict(limits),
        "tokenizer": tokenizer.facts(),
    }
    if taken < requests and not (fewer and taken):
        raise _too_few(taken, requests, facts["dropped"])
    return Choice(sessions=tuple(sessions), facts=facts)


def _too_few(taken: int, requests: int, dropped: dict[str, int]) -> UserError:
    reasons = "".join(f"; {number} {reason}" for reason, number in dropped.items())
    return UserError(
        f"the file has {number_of(taken, 'exchange')} that can be asked for{reasons}",
        expected=f"{requests}, as 'requests' says",
        fix=f"requests: {taken}" if taken else "widen the limits on lengths",
    )


Exchanges = tuple[tuple[Exchange, ...], str | None]
"""What is asked for, and why it is not more."""


def _first_turns(entry: Entry, tokenizer: Tokenizer, limits: LengthLimits) -> Exchanges:
    """Take the first two turns, whoever speaks; special tokens are counted with both, as vLLM does."""
    system = tuple(t for t in entry.turns[:1] if t[0] == SYSTEM)
    rest = entry.turns[len(system) :]
    if len(rest) < 2:
        return (), "no_answer"
    exchange = _exchange(system, rest[0][1], rest[1][1], tokenizer, first=True, answer_special=True)
    why = limits.broken(len(exchange.tokens), exchange.answer_tokens, 0)
    return ((exchange,), None) if why is None else ((), why)


def _all_turns(entry: Entry, tokenizer: Tokenizer, limits: LengthLimits) -> Exchanges:
    """Take all turns until one cannot be asked for."""
    system = tuple(t for t in entry.turns[:1] if t[0] == SYSTEM)
    rest = entry.turns[len(system) :]
    found: list[Exchange] = []
    before = 0
    for place in range(0, len(rest), 2):
        why = _out_of_turn(rest[place : place + 2], first=not found)
        if why is not None:
            return tuple(found), why
        (_, asked), (_, answered) = rest[place : place + 2]
        exchange = _exchange(
            system if not found else (), asked, answered, tokenizer, first=not found, answer_special=False
        )
        why = limits.broken(len(exchange.tokens), exchange.answer_tokens, before)
        if why is not None:
            return tuple(found), why
        found.append(exchange)
        before += len(exchange.tokens) + exchange.answer_tokens
    return tuple(found), None if found else "no_answer"


def _out_of_turn(pair: tuple[tuple[str, str], ...], *, first: bool) -> str | None:
    roles = tuple(role for role, _ in pair)
    if roles == (USER, ASSISTANT):
        return None
    if roles == (USER,):
        return "no_answer"
    return "begun_by_answer" if first and roles[0] == ASSISTANT else "out_of_turn"


def _exchange(
    system: tuple[tuple[str, str], ...],
    asked: str,
    answered: str,
    tokenizer: Tokenizer,
    *,
    first: bool,
    answer_special: bool,
) -> Exchange:
    # The system's words are counted as they are sent as text: before the prompt, with an empty line between them.
    text = "\n\n".join((*(words for _, words in system), asked))
    return Exchange(
        messages=(*system, (USER, asked)),
        tokens=tokenizer.encode(text, first),
        answer_tokens=len(tokenizer.encode(answered, answer_special)),
    )
