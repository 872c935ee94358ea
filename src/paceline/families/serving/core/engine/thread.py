"""The engine's own thread: takes requests in between steps, and gives tokens out as soon as they are there."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.families.serving.api.scheduling import Scheduler, Step, View
from paceline.families.serving.core.engine.core import Engine, Output, RefusedStepError, facts
from paceline.worker.fences.guard import ContractBreachError, Guard

CHECK_EVERY = 64
"""Steps between two looks at what a technique must leave as it is."""
LONGEST_HOLD_S = 10.0
"""Time after which the engine begins with a part of a batch: some of its requests never came."""


class FencedScheduler:
    """A technique inside the fences.

    Args:
        inner: It.
        guard: The fences.
    """

    def __init__(self, inner: Scheduler, guard: Guard) -> None:
        self._inner, self._guard = inner, guard
        self.shares_prefixes = bool(inner.shares_prefixes)
        self._calls = 0

    def plan(self, view: View) -> Step:
        """Let it plan.

        Raises:
            ContractBreachError: It does what a technique may not.
        """
        self._guard.open()
        try:
            step = self._inner.plan(view)
        finally:
            self._guard.close()
        self._calls += 1
        # The first call is looked at, then some: a whole look each time would be a part of every step's time.
        if self._calls % CHECK_EVERY == 1:
            self._guard.check()
        # Outside of the fences, so that the harness's own check is not held against the technique.
        if not isinstance(step, Step):
            raise RefusedStepError(f"the scheduler returned {type(step).__name__} instead of a Step")
        return step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Tell it what a tenant got."""
        self._guard.open()
        try:
            self._inner.served(tenant, prompt_tokens, output_tokens)
        finally:
            self._guard.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request on its way into the engine."""

    prompt: Sequence[int]
    wanted: int
    tenant: str
    hear: Callable[[list[Output]], None]
    """Called from the engine's thread with its tokens; with an empty list when the engine has failed."""
    admitted: Callable[[int], None]
    """Called with its number."""
    refused: Callable[[str], None]
    """Called with the reason why it can never be served."""


class EngineThread:
    """Drives an engine.

    Args:
        engine: It; nothing else may touch it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: deque[Asked] = deque()
        self._cancelled: deque[int] = deque()
        self._hearing: dict[int, Callable[[list[Output]], None]] = {}
        self._wake = threading.Condition()
        self._began_s = time.monotonic()
        self.failure: str | None = None
        """Why the engine has stopped, or None."""
        self.failure_kind: str | None = None
        self._counters = facts(engine.counters)
        self._num_asked = 0
        self._held: int | None = None
        """Requests that must have been asked for before the next step; None when nothing is held."""
        self._held_until_s = 0.0
        self._queued_at_start = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def ask(self, asked: Asked) -> None:
        """Hand a request over."""
        with self._wake:
            self._asked.append(asked)
            self._num_asked += 1
            self._wake.notify()

    def hold(self, number: int, longest_s: float = LONGEST_HOLD_S) -> None:
        """Take no step until so many further requests were asked for: a batch is scheduled as a whole, or not at all.

        Args:
            number: Requests of the batch.
            longest_s: Time after which it begins all the same.
        """
        with self._wake:
            self._held = self._num_asked + number
            self._held_until_s = time.monotonic() + longest_s
            self._wake.notify()

    def cancel(self, number: int) -> None:
        """Forget a request."""
        with self._wake:
            self._cancelled.append(number)
            self._wake.notify()

    def counters(self) -> dict[str, float]:
        """Return what has been counted up to the last step, and how many requests waited when a held batch began."""
        return {**self._counters, "queued_at_start": float(self._queued_at_start)}

    def _run(self) -> None:
        try:
            while True:
                self._take_in()
                self._give_out(self._engine.step(time.monotonic() - self._began_s))
                self._counters = facts(self._engine.counters)
        except (RefusedStepError, ContractBreachError) as error:
            self._fail("refused", str(error))
        except Exception as error:
            self._fail("crashed", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=6)}")

    def _take_in(self) -> None:
        """Wait for work, then let new requests in and forget cancelled ones."""
        with self._wake:
            while (left_s := self._left_to_hold_s()) or not (
                self._asked or self._cancelled or self._engine.busy
            ):
                self._wake.wait(left_s or None)
            begins = self._held is not None and bool(self._asked)
            if begins:
                self._held = None
            # Swapped under the lock and worked off outside of it: the event loop must never wait for a step.
            asked, self._asked = self._asked, deque()
            cancelled, self._cancelled = self._cancelled, deque()
        for request in asked:
            now_s = time.monotonic() - self._began_s
            try:
                number = self._engine.submit(
                    request.prompt, request.wanted, tenant=request.tenant, now_s=now_s
                )
            except ValueError as error:
                request.refused(str(error))
                continue
            # Before the next step, which may bring its first token.
            self._hearing[number] = request.hear
            request.admitted(number)
        if begins:
            self._queued_at_start = self._engine.totals()[0]
        # After admissions: a client may go in the moment in which its request is taken in.
        for number in cancelled:
            self._engine.cancel(number)
            self._hearing.pop(number, None)
        # A cancelled request may have been the last one, and no step would follow to tell of it.
        if cancelled:
            self._counters = facts(self._engine.counters)

    def _left_to_hold_s(self) -> float:
        """Return how long a batch that is not complete may hold the engine yet; 0 when nothing does."""
        if self._held is None or self._num_asked >= self._held:
            return 0.0
        return max(0.0, self._held_until_s - time.monotonic())

    def _give_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            hear = self._hearing[output.number]
            if output.last:
                del self._hearing[output.number]
            hear([output])

    def _fail(self, kind: str, reason: str) -> None:
        self.failure_kind, self.failure = kind, reason
        for hear in list(self._hearing.values()):
            hear([])
        while True:  # what comes later is told as well
            with self._wake:
                while not self._asked:
                    self._wake.wait()
                asked, self._asked = self._asked, deque()
            for request in asked:
                request.refused(f"the engine has stopped: {reason}")
