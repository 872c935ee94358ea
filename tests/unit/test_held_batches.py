"""A batch that is known as a whole: the engine begins when all of it is queued, and whoever plans sees all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace

import pytest
from paceline.baselines.serving.batchllm import BatchLlm

from paceline.families.serving.api.scheduling import Step, View
from paceline.families.serving.core.engine import thread as engine_thread
from paceline.families.serving.core.engine.core import Engine, Output, Work
from paceline.families.serving.core.engine.thread import Asked, EngineThread

BLOCK, PREFIXES, EACH = 4, 6, 8
PATIENCE_S = 60.0


class Seeing(BatchLlm):
    """Notes how many requests wait when it plans first."""

    first: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()

    def plan(self, view: View) -> Step:
        """Plan as BatchLLM does."""
        if self.first is None:
            self.first = len(view.waiting)
            self.began.set()
        return super().plan(view)


def compute(work: Sequence[Work]) -> list[int]:
    return [4 + piece.sequence.number % 50 for piece in work if piece.ends]


def engine_of(planner: BatchLlm) -> Engine:
    # Room for little more than two of the prefixes, so that an order that comes back to one computes it again.
    return Engine(planner, compute, num_blocks=40, block_size=BLOCK, max_batch=4, token_budget=64)


def ask_all(thread: EngineThread, *, asked_first: Callable[[], None] = lambda: None) -> threading.Semaphore:
    """Ask for all requests of a batch, shuffled by prefix; return what their last tokens release.

    Args:
        thread: The engine's.
        asked_first: Is called when one is asked, and the others are not.
    """
    ended = threading.Semaphore(0)

    def hear(outputs: list[Output]) -> None:
        if not outputs or outputs[-1].last:
            ended.release()

    for number in range(PREFIXES * EACH):
        prefix = [100 * (number % PREFIXES) + k for k in range(8 * BLOCK)]
        asked = Asked(
            prompt=[*prefix, 9000 + number],
            wanted=2,
            tenant="",
            hear=hear,
            admitted=lambda number: None,
            refused=partial(pytest.fail),
        )
        thread.ask(asked)
        if number == 0:
            asked_first()
    return ended


def wait_for_all(ended: threading.Semaphore, thread: EngineThread) -> None:
    for _ in range(PREFIXES * EACH):
        assert ended.acquire(timeout=PATIENCE_S), thread.failure


def test_who_plans_over_a_batch_sees_all_of_it_when_it_is_held() -> None:
    planner = Seeing()
    thread = EngineThread(engine_of(planner))
    thread.hold(PREFIXES * EACH)
    wait_for_all(ask_all(thread), thread)
    counters = thread.counters()
    assert planner.first == counters["queued_at_start"] == PREFIXES * EACH
    # every prefix is computed once: what is not found is a prefix for the first of each, and everybody's last token
    assert counters["computed_prompt_tokens"] == PREFIXES * 8 * BLOCK + PREFIXES * EACH


def test_without_a_hold_the_queue_is_still_filling() -> None:
    planner = Seeing()
    thread = EngineThread(engine_of(planner))
    wait_for_all(ask_all(thread, asked_first=lambda: planner.began.wait(PATIENCE_S)), thread)
    assert planner.first is not None and planner.first < PREFIXES * EACH
    assert thread.counters()["queued_at_start"] == 0


def test_a_batch_of_which_a_part_never_comes_is_begun_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(engine_thread, "time", SimpleNamespace(monotonic=lambda: now_s))
    planner = Seeing()
    thread = EngineThread(engine_of(planner))
    thread.hold(PREFIXES * EACH + 1, longest_s=0.3)
    ended = ask_all(thread)
    assert planner.first is None
    now_s = 0.25
    assert not planner.began.wait(0.1)
    now_s = 0.3
    wait_for_all(ended, thread)
    assert planner.first == PREFIXES * EACH
