"""The contract of techniques that decode one answer with a draft model beside copies of the target. Free of torch.

A decoder submits computations to a simulator, which plays them in virtual time: the drafter says one token more, a copy
of the target says what it would say behind a prefix and behind each of some drafts. What is handed out must be the
target's own greedy answer, each token only once the target has said it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DRAFT, CHECK = "draft", "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What there is to decode with."""

    num_tokens: int
    """Of the answer."""
    servers: int
    """Copies of the target; the drafter has a device of its own."""
    lookahead: int
    """Drafts of a check, for who lets the point choose."""
    target_s: float
    """Of one call of the target that checks no draft."""
    drafter_s: float
    """Of one token of the drafter."""
    growth: float
    """What each draft adds to a call of the target, as a share of it."""
    interruptible: bool
    """Whether a cancelled call leaves its device at once; else its device is busy to the call's end."""


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """A computation that was asked for."""

    kind: str
    """``draft`` or ``check``."""
    prefix: tuple[int, ...]
    """Of the answer, behind the prompt."""
    drafts: tuple[int, ...] = ()
    told: tuple[int, ...] | None = None
    """Once it ended: the drafter's next token, or the target's behind the prefix and behind each draft, one more than
    there are drafts; None while it runs and where it was cancelled."""


class Simulator(Protocol):
    """Where a decoder asks; its clock stands still except in ``wait``."""

    @property
    def given(self) -> Given:
        """Return what there is."""

    @property
    def now_s(self) -> float:
        """Return the virtual time."""

    def free_servers(self) -> int:
        """Return how many copies of the target compute nothing."""

    def drafter_free(self) -> bool:
        """Return whether the drafter computes nothing."""

    def draft(self, prefix: Sequence[int]) -> Job:
        """Let the drafter say the token behind a prefix.

        Raises:
            RefusedStepError: It is busy, or a token of the prefix was told by nobody.
        """

    def check(self, prefix: Sequence[int], drafts: Sequence[int] = ()) -> Job:
        """Let a copy of the target say the tokens behind a prefix and behind each draft.

        Raises:
            RefusedStepError: All are busy, or a token was told by nobody.
        """

    def cancel(self, job: Job) -> None:
        """Give a job up; nothing happens where it has ended."""

    def wait(self) -> Job:
        """Let time pass to the next end of a job, or of a cancelled one whose device comes free, and return it.

        Raises:
            RefusedStepError: Nothing is computed, so that nothing will end.
        """

    def deliver(self, tokens: Sequence[int]) -> None:
        """Hand out the answer's next tokens, now."""


class Decoder(Protocol):
    """A technique of the operation ``decode``."""

    def decode(self, simulator: Simulator) -> None:
        """Hand out ``simulator.given.num_tokens`` tokens, the target's own."""
