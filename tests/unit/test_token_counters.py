"""The virtual token counter's rule for tenants that begin to wait (algorithm 2 of its paper), step by step."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.vtc import VirtualTokenCounter

from paceline.families.serving.api.scheduling import Request, View


class NothingCached:
    """A cache that holds nothing, in blocks of one token."""

    def cached_tokens(self, number: int) -> int:
        return 0

    def beginning(self, number: int) -> tuple[int, ...]:
        return ()

    def blocks_needed(self, number: int, tokens: int) -> int:
        return tokens

    def blocks_freed(self, number: int) -> int:
        return 0


def admitted(
    scheduler: VirtualTokenCounter, waiting: Sequence[tuple[int, str, int]], places: int = 99
) -> list[int]:
    """Plan a step in which nothing runs; return who is admitted in which order.

    Args:
        scheduler: It keeps its counters from step to step.
        waiting: Number, tenant and prompt tokens of each request, in the order of arrival.
        places: Requests that the step may admit.
    """
    requests = [
        Request(number=n, tenant=t, arrived_s=0.0, tokens=tokens, computed=0, answered=0, preempted=0)
        for n, t, tokens in waiting
    ]
    view = View(
        now_s=0.0,
        waiting=requests,
        running=[],
        cache=NothingCached(),
        free_blocks=10_000,
        num_blocks=10_000,
        block_size=1,
        token_budget=10_000,
        max_batch=places,
    )
    return list(scheduler.plan(view).tokens)


def test_after_a_pause_a_newcomer_begins_at_the_counter_of_who_stopped_waiting_last() -> None:
    scheduler = VirtualTokenCounter()
    # Counters: heavy 500, light 10; light stops waiting last.
    assert admitted(scheduler, [(0, "heavy", 500), (1, "light", 10)]) == [0, 1]
    assert admitted(scheduler, []) == []
    # At 500, the highest counter, the newcomer would have no more right than heavy has.
    assert admitted(scheduler, [(2, "new", 10), (3, "heavy", 10)]) == [2, 3]


def test_who_comes_again_at_the_step_after_it_stopped_waiting_is_lifted() -> None:
    scheduler = VirtualTokenCounter()
    many = [(n, "a", 100) for n in range(3)]
    # Counters: a 100, b 10; a goes on waiting, b does not.
    assert admitted(scheduler, [*many, (3, "b", 10)], places=2) == [0, 3]
    # At 10 b would have two turns before a; lifted to 100 it has the same right, and a comes first by name.
    assert admitted(scheduler, [*many[1:], (4, "b", 40), (5, "b", 40)], places=2) == [1, 4]


def test_who_goes_on_waiting_is_not_lifted() -> None:
    scheduler = VirtualTokenCounter()
    assert admitted(scheduler, [(0, "a", 100), (1, "a", 100), (2, "b", 10), (3, "b", 10)], places=2) == [0, 2]
    assert admitted(scheduler, [(1, "a", 100), (3, "b", 10)], places=2) == [3, 1]


def test_who_was_served_much_and_went_away_does_not_come_back_as_new() -> None:
    scheduler = VirtualTokenCounter()
    assert admitted(scheduler, [(0, "heavy", 500), (1, "light", 10)]) == [0, 1]
    assert admitted(scheduler, [(2, "light", 10), (3, "light", 10), (4, "heavy", 10)]) == [2, 3, 4]


def test_answers_are_charged_twice_a_prompts_tokens_as_they_come() -> None:
    scheduler = VirtualTokenCounter()
    assert admitted(scheduler, [(0, "a", 10), (1, "a", 10), (2, "b", 11), (3, "b", 11)], places=2) == [0, 2]
    scheduler.served("a", 0, 1)  # a: 10 + 2, b: 11
    assert admitted(scheduler, [(1, "a", 10), (3, "b", 11)], places=2) == [3, 1]
