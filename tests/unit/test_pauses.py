"""A pass is looked at between two of its calls: work that is done early, late or together with that of others is seen.

The time of one call is a pass's time by the number of its calls, which says nothing where one call did all the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process import passes
from paceline.families.kernels.core.timing_process.pauses import Pause
from paceline.families.kernels.core.timing_process.working_set import WorkingSet
from paceline.worker.ranks.session import CaseError

CALLS = 8
DEVICES = [torch.device("cpu"), torch.device("cuda")]
"""By address, and as a device copies them (its operators are those of the processor here)."""
Call = Callable[..., None]


def sets(count: int = CALLS) -> list[WorkingSet]:
    made = []
    for number in range(count):
        working = WorkingSet([torch.full((16,), float(number + 1))], [torch.empty(16), torch.empty(4)])
        working.fill(working.inputs, {"variant": 0, "factors": [1.0], "roll": 0}, None)
        made.append(working)
    return made


def compute(x: Tensor, y: Tensor, z: Tensor) -> None:
    torch.mul(x, 2.0, out=y)
    z.copy_(y[:4])


def passed(technique: Callable[[Sequence[WorkingSet]], Call], device: torch.device) -> None:
    """Make a pass with a pause, and judge what the pause saw."""
    called = sets()
    pause = Pause(called, device)
    passes.host_pass(technique(called), [w.arguments() for w in called], pause)
    pause.check()


def honest(called: Sequence[WorkingSet]) -> Call:
    return compute


def _together(called: Sequence[WorkingSet], size: int) -> Call:
    """Note calls until there are so many, and compute them in the last."""
    waiting: list[tuple[Tensor, ...]] = []

    def run(*tensors: Tensor) -> None:
        waiting.append(tensors)
        if len(waiting) == size:
            for each in waiting:
                compute(*each)
            waiting.clear()

    return run


def in_the_last(called: Sequence[WorkingSet]) -> Call:
    return _together(called, CALLS)


def in_the_first(called: Sequence[WorkingSet]) -> Call:
    waiting = [w.arguments() for w in called]

    def run(*tensors: Tensor) -> None:
        for each in waiting:
            compute(*each)
        waiting.clear()

    return run


def one_output_late(called: Sequence[WorkingSet]) -> Call:
    """Write something that looks like a result, and the result in the next call."""
    before: list[tuple[Tensor, ...]] = []
    left = [CALLS]

    def run(x: Tensor, y: Tensor, z: Tensor) -> None:
        for each in before:
            compute(*each)
        before[:] = [(x, y, z)]
        y.zero_()
        z.zero_()
        left[0] -= 1
        if not left[0]:
            compute(x, y, z)

    return run


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_calls_that_do_their_own_work_pass_at_every_place(device: torch.device) -> None:
    places = set()
    for _ in range(300):
        called = sets()
        pause = Pause(called, device)
        places.add(pause.after)
        passes.host_pass(compute, [w.arguments() for w in called], pause)
        pause.check()
    assert places == set(range(1, CALLS))


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize(
    ("technique", "reason"),
    [
        (in_the_last, "after its call had returned"),
        (one_output_late, "after its call had returned"),
        (in_the_first, "before its call"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_work_in_the_call_of_another_is_seen_in_every_pass(
    technique: Callable[[Sequence[WorkingSet]], Call], reason: str, device: torch.device
) -> None:
    for _ in range(30):
        with pytest.raises(CaseError, match=reason) as caught:
            passed(technique, device)
        assert caught.value.status == "incorrect"


def test_calls_that_are_computed_in_pairs_are_seen_in_one_pass_of_two() -> None:
    seen = 0
    for _ in range(200):
        try:
            passed(lambda called: _together(called, 2), torch.device("cpu"))
        except CaseError:
            seen += 1
    # Four of the seven places lie within a pair: 114 expected, with a standard deviation of 7.
    assert 79 < seen < 150


def test_a_pause_is_none_of_the_passs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def tick(amount: int) -> None:
        now[0] += amount

    monkeypatch.setattr(passes, "_perf_ns", lambda: now[0])
    monkeypatch.setattr(passes, "_busy_ns", lambda: now[0])
    pause = Pause(sets(), torch.device("cpu"))
    look = pause.look
    monkeypatch.setattr(pause, "look", lambda: (tick(1_000_000), look()))
    elapsed, busy = passes.host_pass(lambda *_: tick(7), [()] * CALLS, pause)
    assert (elapsed, busy) == (7 * CALLS, 7 * CALLS)
