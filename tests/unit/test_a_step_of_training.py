"""What a technique replaces in one part of a step and puts back in a later one wins nothing, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.families.training.api.replica import Replica
from paceline.families.training.core.loop import training
from paceline.families.training.core.loop.callback import Callback
from paceline.families.training.core.loop.trained import PARTS
from paceline.families.training.core.loop.training import Loop
from paceline.families.training.ops.pipeline_parallel import passes
from paceline.families.training.ops.pipeline_parallel.passes import Passes
from paceline.worker.communication.comm import Counters
from paceline.worker.fences.guard import ContractBreachError, Guard

COUNTED, PLAIN = 0, 1
SENT_BYTES = 7
CLOCK_LIMIT_NS = 60 * 10**9

Replaced = tuple[Any, str, Any]
CHEATS: dict[str, Callable[[], Replaced]] = {
    "stops the clock": lambda: (training, "_clock_ns", lambda: 0),
    "hides what it sends": lambda: (training, "enumerate", lambda values: ()),
    "hides the copy of what it sends": lambda: (training, "list", lambda values: [0, 0]),
    "says that no step is counted": lambda: (Loop, "count_after", property(lambda loop: frozenset())),
    "says that nothing rides along": lambda: (Loop, "_look_after_backward", lambda loop, step, given: None),
    "forges its passes": lambda: (passes, "passes_of", lambda replica: ["forged"]),
    "notes no passes": lambda: (Passes, "after_backward", lambda callback, step: 0),
    "skips the look": lambda: (Loop, "_look_before_update", lambda loop, step, given: None),
}


class Cheat(Replica):
    """Replaces something in forward and backward, and puts it back after the update."""

    def __init__(self, replaced: Replaced | None) -> None:
        self.model = nn.Linear(2, 2)
        self.comm: Any = SimpleNamespace(counters=Counters(2))
        self.task: Any = SimpleNamespace(device=torch.device("cpu"), rate=lambda step: 0.1)
        self.replaced = replaced

    def set_rate(self, rate: float) -> None:
        """Do nothing."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Send something, and replace."""
        self.comm.counters.sent_bytes[1] += SENT_BYTES
        if self.replaced is not None:
            owner, name, value = self.replaced
            self.was = vars(owner).get(name)
            setattr(owner, name, value)
        return torch.tensor(1.0)

    def update(self, step: int) -> None:
        """Do nothing."""

    def exchange_parameters(self, step: int) -> None:
        """Put back."""
        if self.replaced is not None:
            owner, name, _ = self.replaced
            if self.was is None:
                delattr(owner, name)
            else:
                setattr(owner, name, self.was)


class Noting(Callback):
    """Takes notes in no time, in the step before the evaluation."""

    stops_after_backward = frozenset({PLAIN})

    def __init__(self, noted: list[Any]) -> None:
        self.noted = noted

    def after_backward(self, step: int) -> int:
        """Take one."""
        self.noted.append(step)
        return 0


def make_loop(
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
    *,
    gradient_probe: Callback | None = None,
    marks: Any = None,
) -> Loop:
    guard = Guard((training, passes))
    device = SimpleNamespace(synchronize=lambda: None, marks=lambda: marks)
    session = SimpleNamespace(world_size=2, rank=0, guard=guard, device=device)
    sandbox: Any = SimpleNamespace(session=session, replica=replica, watch=guard.watch, diagnosis=dict)
    batches = torch.zeros(2, 1, 3, dtype=torch.uint8)
    counted = frozenset({COUNTED})
    trial: Any = SimpleNamespace(session=session, sandbox=sandbox, count_after=counted)
    callbacks = [Passes(trial), *([gradient_probe] if gradient_probe else [])]
    ends = frozenset({len(batches)})
    loop = Loop(sandbox, batches, window=1, evaluate_after=ends, count_after=counted, callbacks=callbacks)
    monkeypatch.setattr(loop, "_count_memory", lambda: None)
    return loop


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_it_is_refused_where_the_harness_looks_inside_a_step(
    cheat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make_loop(Cheat(CHEATS[cheat]()), monkeypatch)
    with pytest.raises(ContractBreachError, match="it replaced"):
        loop._step(COUNTED, last=False)


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_it_is_refused_before_gradients_are_noted(cheat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    loop = make_loop(Cheat(CHEATS[cheat]()), monkeypatch, gradient_probe=Noting(noted))
    with pytest.raises(ContractBreachError, match="it replaced"):
        loop._step(PLAIN, last=False)  # the one before the evaluation
    assert not noted


@pytest.mark.parametrize("cheat", sorted(CHEATS))
def test_it_wins_nothing_elsewhere(cheat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = make_loop(Cheat(CHEATS[cheat]()), monkeypatch)
    loop._step(PLAIN, last=False)
    assert all(0 <= part < CLOCK_LIMIT_NS for part in loop._parts)
    assert loop.trained.pass_bytes == [0, SENT_BYTES]
    assert loop.callbacks[0].noted == []  # type: ignore[attr-defined]  # it is Passes


def test_an_honest_one_passes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    loop = make_loop(Cheat(None), monkeypatch, gradient_probe=Noting(noted))
    loop._step(COUNTED, last=False)
    loop._step(PLAIN, last=True)
    assert loop.trained.pass_bytes == [0, 2 * SENT_BYTES]
    assert len(noted) == 1


def test_a_slow_ranks_computation_is_longer_by_what_it_waits_for_in_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = {"ns": 0}
    monkeypatch.setattr(training, "_clock_ns", lambda: clock["ns"])
    monkeypatch.setattr(training, "_sleep", lambda s: clock.update(ns=clock["ns"] + round(s * 1e9)))
    loop = make_loop(Cheat(None), monkeypatch)
    loop.extra_s = 0.25
    loop._step(PLAIN, last=False)
    loop._step(PLAIN, last=False)
    assert dict(zip(training.PARTS, loop._parts, strict=True)) == {
        "compute_s": 500_000_000,
        "gradients_s": 0,
        "update_s": 0,
        "parameters_s": 0,
    }


class Issuing(Cheat):
    """Issues work to a device, which goes on when the call has returned."""

    now_s = 0.0

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Issue three seconds."""
        self.now_s += 3.0
        return torch.tensor(1.0)

    def exchange_gradients(self, step: int) -> None:
        """Wait two seconds in the stream."""
        self.now_s += 2.0

    def update(self, step: int) -> None:
        """Issue a quarter of a second."""
        self.now_s += 0.25


def test_the_parts_of_a_step_are_the_device_s_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = Issuing(None)
    marks = SimpleNamespace(mark=lambda: replica.now_s, seconds=lambda begin, end: end - begin)
    loop = make_loop(replica, monkeypatch, marks=marks)
    for _ in range(2):
        loop._step(PLAIN, last=False)
    loop._close_window(10**9, {"communicate": 0.5})
    (row,) = loop.trained.windows
    assert row[1 : 1 + len(PARTS)] == [6.0, 4.0, 0.5, 0.0]
