"""What is asked of a server: calls with their prompts, when each is due, and how they hang together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Messages:
    """Words with their speakers, which a chat's request keeps apart."""

    turns: tuple[tuple[str, str], ...]
    """Roles (``system``, ``user``, ``assistant``) and texts."""


Prompt = tuple[int, ...] | str | Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request.

    Of an open loop it has an instant; of a closed loop it is sent when a place is free; one that waits for others is
    due when all of them have ended, ``pause_s`` later, whatever the loop.
    """

    number: int
    """Its place in the workload, from 0."""
    prompt: Prompt
    """Token ids, text, or the messages of a chat."""
    output_tokens: int
    """Tokens that are asked for; the server is told to write as many."""
    tenant: str = ""
    at_s: float | None = None
    """Behind the start; None in a closed loop, or where it waits for others."""
    after: tuple[int, ...] = ()
    """Numbers of the calls whose end it waits for."""
    pause_s: float = 0.0
    carries: bool = False
    """Whether its prompt begins with the first of ``after``: that one's prompt and answer."""
    chat: bool = False
    meant_tokens: int | None = None
    """Tokens that a prompt of words is meant to have; None where nobody said, or the prompt is token ids."""

    @property
    def prompt_tokens(self) -> int:
        """Return how many token ids its prompt has."""
        assert isinstance(self.prompt, tuple)
        return len(self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All calls of a run.

    Raises:
        ValueError: Calls are not numbered from 0 in order, wait for calls that come later, or have two kinds of due
            time.
    """

    calls: tuple[Call, ...]
    concurrency: int | None = None
    """Places of a closed loop; None in an open one."""
    cap: int | None = None
    """Most calls under way of an open loop; those beyond wait in the client, and their time runs."""
    roots: tuple[int, ...] = field(init=False)
    """For each call the number of the call that its session or workflow begins with."""

    def __post_init__(self) -> None:
        """Check how calls hang together."""
        roots: list[int] = []
        for position, call in enumerate(self.calls):
            if call.number != position:
                raise ValueError(f"call {call.number} stands at place {position}")
            # Only backwards, so calls cannot wait for each other in a circle.
            if any(not 0 <= n < position for n in call.after):
                raise ValueError(f"call {position} waits for one that does not come before it")
            if call.carries and not call.after:
                raise ValueError(f"call {position} carries on, but from none")
            if call.after and call.at_s is not None:
                raise ValueError(f"call {position} waits for others and has an instant of its own")
            if not call.after and (call.at_s is None) == (self.concurrency is None):
                raise ValueError(f"call {position} has {'no' if call.at_s is None else 'an'} instant")
            roots.append(min((roots[n] for n in call.after), default=position))
            for other in call.after:  # a join of two sessions makes them one
                joined, kept = roots[other], roots[position]
                if joined != kept:
                    roots[:] = [kept if r == joined else r for r in roots]
        object.__setattr__(self, "roots", tuple(roots))

    def share(self, part: int, parts: int) -> tuple[Call, ...]:
        """Return the calls that one of several processes sends: whole sessions, dealt out in turn."""
        # Whole sessions to one process: a call is due when the one before has ended, which no other process sees.
        order = {root: place for place, root in enumerate(sorted(set(self.roots)))}
        return tuple(c for c in self.calls if order[self.roots[c.number]] % parts == part)

    def places(self, part: int, parts: int, total: int | None) -> int | None:
        """Return one process's part of a number of places."""
        return None if total is None else total // parts + (part < total % parts)


def prompt_lengths(calls: Iterable[Call]) -> dict[int, int | None]:
    """Return how many tokens each call's whole prompt is meant to have; None where nobody can say.

    Args:
        calls: In order, with all that they carry on.
    """
    found: dict[int, int | None] = {}
    asked: dict[int, int] = {}
    for call in calls:
        own = len(call.prompt) if isinstance(call.prompt, tuple) else call.meant_tokens
        before = 0
        if call.carries and own is not None:
            earlier = found.get(call.after[0])
            own = None if earlier is None else own
            before = (earlier or 0) + asked.get(call.after[0], 0)
        found[call.number] = None if own is None else before + own
        asked[call.number] = call.output_tokens
    return found


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as text; token ids are words, and messages stand apart by an empty line."""
    if isinstance(prompt, Messages):
        return "\n\n".join(text for _, text in prompt.turns)
    return prompt if isinstance(prompt, str) else " ".join(f"t{token}" for token in prompt)


def carried(earlier: Prompt, answer: Sequence[int] | str, more: Prompt) -> Prompt:
    """Return the prompt of a session's next turn: what was asked, what was answered, and what is asked now."""
    if isinstance(earlier, tuple) and isinstance(more, tuple) and not isinstance(answer, str):
        return (*earlier, *answer, *more)
    told = answer if isinstance(answer, str) else prompt_text(tuple(answer))
    if isinstance(earlier, Messages):
        asked = more.turns if isinstance(more, Messages) else (("user", prompt_text(more)),)
        return Messages((*earlier.turns, ("assistant", told), *asked))
    return f"{prompt_text(earlier)} {told} {prompt_text(more)}"
