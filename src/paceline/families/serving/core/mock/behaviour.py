"""What the mock server does, and the instants at which it does it: pure functions, so that truth can be computed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

FAULTS = {
    "status_429": "answers 429 with Retry-After",
    "status_500": "answers 500",
    "malformed_event": "an event in the middle is no JSON",
    "malformed_http": "the answer is not HTTP",
    "schema": "events are JSON of another schema",
    "error_event": "tells of an error in the middle",
    "disconnect": "closes the connection in the middle",
    "stall": "stops writing in the middle and keeps the connection",
    "content_type": "answers whole, as JSON",
    "endless": "never stops writing",
    "huge_token": "one token of ten million characters",
    "no_end": "ends without telling so",
    "truncated": "writes half of the tokens and says that it stopped",
    "killed": "the server dies in the middle",
}
"""What can be wrong with an answer; a request asks for it with the tenant ``fault:NAME``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """A distribution of durations."""

    mean_s: float
    kind: Literal["constant", "exponential", "lognormal"] = "constant"
    spread: float = 0.5
    """Of lognormal: the standard deviation of the logarithm."""

    def draw(self, rng: random.Random) -> float:
        """Return one duration in seconds."""
        if self.kind == "constant":
            return self.mean_s
        if self.kind == "exponential":
            return rng.expovariate(1.0 / self.mean_s)
        # Less half of the variance, so that the mean is mean_s whatever the spread.
        return self.mean_s * math.exp(rng.gauss(-(self.spread**2) / 2.0, self.spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """A time in which the server does nothing, as in a collection of garbage or under SIGSTOP."""

    at_s: float
    """Behind the first request."""
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a mock server does."""

    first: Gaps = Gaps(mean_s=0.05)
    """From the begin of service to the first token."""
    gap: Gaps = Gaps(mean_s=0.01)
    """Between two tokens."""
    tokens_per_chunk: int = 1
    """Tokens of an event; it is written when the last of them is there."""
    places: int | None = None
    """Requests served at once; others wait in the order of their arrival. None serves all."""
    freezes: tuple[Freeze, ...] = ()
    stall_every: int = 0
    """Every so many gaps of an answer one is longer; 0 for none."""
    stall_s: float = 0.1
    """By how much."""
    role_first: bool = False
    """Whether an event that holds a role and no text comes before the first token, half way."""
    usage: bool = True
    token_ids: bool = True
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return what ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Behaviour:
        """Read what ``as_json`` returned."""
        nested = {
            "first": Gaps(**data["first"]),
            "gap": Gaps(**data["gap"]),
            "freezes": tuple(Freeze(**f) for f in data["freezes"]),
        }
        return cls(**{**data, **nested})

    def thawed_s(self, instant_s: float) -> float:
        """Return when something that is due at an instant really happens."""
        for freeze in self.freezes:
            if freeze.at_s <= instant_s < freeze.at_s + freeze.for_s:
                return freeze.at_s + freeze.for_s
        return instant_s

    def tokens(self, served_s: float, tokens: int, rng: random.Random) -> Iterator[float]:
        """Yield the instants of an answer's tokens, in seconds behind the first request.

        Args:
            served_s: When service begins.
            tokens: Their number.
            rng: Of this answer.
        """
        instant_s = self.thawed_s(served_s + self.first.draw(rng))
        yield instant_s
        for number in range(1, tokens):
            gap_s = self.gap.draw(rng)
            if self.stall_every and number % self.stall_every == 0:
                gap_s += self.stall_s
            # Gaps begin from when the last token really came: a frozen server makes nothing up.
            instant_s = self.thawed_s(instant_s + gap_s)
            yield instant_s
