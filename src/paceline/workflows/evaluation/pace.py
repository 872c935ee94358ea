"""When a request may leave: limits of a minute, pauses that the server names, and budgets."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.workflows.evaluation.journal import Totals

MINUTE_S = 60.0
MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money for a million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """Of prompt tokens that the server had read before; None: as others."""

    def cost(self, prompt: float, completion: float, cached: float | None = None) -> float:
        """Return the money of so many tokens, of which the cached ones are among the prompt's."""
        held = min(cached or 0, prompt) if self.cached is not None else 0
        parts = (prompt - held) * self.prompt + held * (self.cached or 0.0) + completion * self.completion
        return parts / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """After what no further request is begun; those under way come to their end."""

    tokens: float | None = None
    """Prompt and completion tokens of all runs of this evaluation."""
    seconds: float | None = None
    """Of this run."""
    money: float | None = None
    """Of all runs of this evaluation."""


class SpentError(Exception):
    """A budget is used up; its text says which."""


class Pace:
    """Lets requests leave one after another. Thread-safe.

    Args:
        requests: Most in any minute; None is no limit.
        tokens: Most in any minute, of prompts and completions; a request counts by ``reserved`` until its answer tells.
        budget: See there.
        prices: What tokens cost; None where nobody says.
        totals: What has been paid so far, kept up to date by whoever keeps the journal.
        clock, sleep: Of the host.
    """

    def __init__(
        self,
        *,
        requests: float | None,
        tokens: float | None,
        budget: Budget,
        prices: Prices | None,
        totals: Totals,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._requests, self._tokens = requests, tokens
        self._budget, self._prices, self._totals = budget, prices, totals
        self._clock, self._sleep, self._begun = clock, sleep, clock()
        self._lock = threading.Lock()
        self._left: deque[list[float]] = deque()
        """Instant and tokens of each request of the last minute, the oldest first."""
        self._held_until = 0.0
        self._stopped = ""
        self.waited_s = 0.0
        """Seconds that limits and pauses made requests wait."""

    def now(self) -> float:
        """Return the clock's seconds."""
        return self._clock()

    def leave(self, reserved: float) -> list[float]:
        """Wait until a request may leave; return what ``settle`` takes when its tokens are known.

        Raises:
            SpentError: A budget is used up.
        """
        while True:
            with self._lock:
                self._check()
                wait = self._wait(reserved)
                if wait <= 0:
                    entry = [self._clock(), reserved]
                    self._left.append(entry)
                    return entry
                self.waited_s += wait
            # Not inside of the lock, and not for long: a budget of seconds may end meanwhile.
            self._sleep(min(wait, 1.0))

    def stop(self, why: str) -> None:
        """Let nothing leave any more."""
        self._stopped = why

    def settle(self, entry: list[float], tokens: float) -> None:
        """Put the tokens of an answer in the place of what was reserved."""
        with self._lock:
            entry[1] = tokens

    def hold(self, seconds: float) -> None:
        """Let no request leave for so long, as the server asks."""
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)

    def _wait(self, reserved: float) -> float:
        now = self._clock()
        while self._left and self._left[0][0] <= now - MINUTE_S:
            self._left.popleft()
        if now < self._held_until:
            return self._held_until - now
        if self._requests is not None and len(self._left) >= max(self._requests, 1):
            return self._left[0][0] + MINUTE_S - now
        # One that is above the limit by itself leaves alone, or it would never.
        if (
            self._tokens is not None
            and self._left
            and sum(t for _, t in self._left) + reserved > self._tokens
        ):
            return self._left[0][0] + MINUTE_S - now
        return 0.0

    def _check(self) -> None:
        if self._stopped:
            raise SpentError(self._stopped)
        paid, budget = self._totals, self._budget
        tokens = paid.prompt_tokens + paid.completion_tokens
        if budget.tokens is not None and tokens >= budget.tokens:
            raise SpentError(f"the budget of {number_of(budget.tokens, 'token', form=',.0f')} is used up")
        if budget.seconds is not None and self._clock() - self._begun >= budget.seconds:
            raise SpentError(f"the budget of {budget.seconds:g} s is used up")
        if budget.money is not None and self._prices is not None:
            spent = self._prices.cost(paid.prompt_tokens, paid.completion_tokens, paid.cached_tokens)
            if spent >= budget.money:
                raise SpentError(f"the budget of {budget.money:g} in money is used up")
