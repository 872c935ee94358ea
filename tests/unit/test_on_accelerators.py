"""Where the harness puts what on an accelerator: what evicts its cache, copies of weights, the host's messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.families.collectives.core.caches import buffer_sets, cache_bytes, flush_bytes
from paceline.families.collectives.core.candidate import Candidate
from paceline.families.training.core.loop import training
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.loop.training import Loop
from paceline.worker.communication import transport
from paceline.worker.communication.transport import Message, TorchTransport, Waitable
from paceline.worker.machine.device import CpuDevice

MEBIBYTE = 1 << 20


def device_of(kind: str, told: int | None) -> Any:
    torch_type = "cuda" if kind == "rocm" else kind
    return SimpleNamespace(
        kind=kind, torch_type=torch_type, describe=lambda: {"last_level_cache_bytes": told}
    )


@pytest.mark.parametrize(
    ("kind", "told", "expected"),
    [
        ("cuda", 50 * MEBIBYTE, 50 * MEBIBYTE),
        ("cuda", None, 128 * MEBIBYTE),
        ("rocm", 4 * MEBIBYTE, 256 * MEBIBYTE),
        ("npu", None, 192 * MEBIBYTE),
    ],
)
def test_a_device_s_cache_is_its_own_and_not_the_host_s(kind: str, told: int | None, expected: int) -> None:
    device = device_of(kind, told)
    assert cache_bytes(device) == expected
    assert flush_bytes("cold-flush", device) == 2 * expected
    assert flush_bytes("hot", device) == 0
    assert buffer_sets("cold-rotate", 8 * MEBIBYTE, device) == min(64, -(-2 * expected // (8 * MEBIBYTE)))


def test_the_host_s_cache_is_overwritten_once() -> None:
    assert flush_bytes("cold-flush", CpuDevice()) == cache_bytes(CpuDevice())


def test_what_evicts_lies_where_the_buffers_are() -> None:
    problem = SimpleNamespace(device=torch.device("meta"))
    workspace: Any = SimpleNamespace(operation=None, problem=problem)
    unused: Any = None
    candidate = Candidate(
        session=unused,
        block=unused,
        case=SimpleNamespace(label="x"),  # type: ignore[arg-type]
        instance=unused,
        comm=unused,
        workspaces=[workspace],
        passed=unused,
        own=None,
        input_seed=0,
        flush_bytes=1024,
    )
    assert candidate._flush is not None
    assert candidate._flush.device.type == "meta"
    assert candidate._flush.numel() == 1024


class Weight:
    """Lies on a device, and takes a gibibyte of it while it is copied."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def to(self, device: str, *, copy: bool) -> str:
        assert copy
        self._memory.peak += 1 << 30
        return f"on the {device}"


class Memory:
    """A device's allocator."""

    peak = 7


def test_copies_of_weights_lie_on_the_host_and_are_no_peak_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory()

    def forget() -> None:
        memory.peak = 3

    monkeypatch.setattr(training.torch.accelerator, "max_memory_allocated", lambda: memory.peak)
    monkeypatch.setattr(training.torch.accelerator, "reset_peak_memory_stats", forget)
    loop = object.__new__(Loop)
    loop.trained = Trained(pass_bytes=[])
    loop.session = SimpleNamespace(device=SimpleNamespace(torch_type="cuda"))  # type: ignore[assignment]
    loop.sandbox = SimpleNamespace(weights=lambda: [Weight(memory)])  # type: ignore[assignment]
    kernel: Any = SimpleNamespace(left_out=training.nullcontext)
    loop._kernel = kernel
    loop._copy(1, 0.0, 0.0)
    assert loop.trained.weights == [["on the cpu"]]
    assert loop.trained.device_peak == 7
    memory.peak = 11
    loop._note_peak()
    assert loop.trained.device_peak == 11


class Loss:
    """A number on a device, which may not be stacked with one of the host."""

    def __init__(self) -> None:
        self.moved: list[str] = []

    def reshape(self, shape: tuple[()]) -> Loss:
        return self

    def to(self, device: str) -> Tensor:
        self.moved.append(device)
        return torch.tensor(1.0)


def test_losses_of_steps_that_a_rank_left_out_go_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = object.__new__(Loop)
    loop.trained = Trained(pass_bytes=[])
    loop.trained.took += [True, False]
    loop.replica = SimpleNamespace(task=SimpleNamespace(device="the device"))  # type: ignore[assignment]
    loop._marks, loop._marked, loop._parts = None, [], [0] * 4
    losses = [Loss(), Loss()]
    loop._losses = losses  # type: ignore[assignment]
    loop._close_window(1, {})
    assert [loss.moved for loss in losses] == [["the device"]] * 2


class Elsewhere(TorchTransport):
    """A group whose device is told apart from the host by what is copied."""

    def __init__(self) -> None:
        self._group = self._global = None
        self.posts_ahead = False
        self._device = "there"
        self._deferred = []

    def _moved(self, tensor: Tensor, *, empty: bool = False) -> Tensor:
        return torch.full_like(tensor, -1) if empty else tensor.clone()


def test_the_host_s_messages_travel_through_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    own, coming = torch.tensor([5.0]), torch.zeros(1)
    given: list[Tensor] = []

    class Work:
        def wait(self) -> None:
            given[0].fill_(9.0)

    def batch(operations: Sequence[Tensor]) -> list[Work]:
        given.extend(operations)
        return [Work()]

    monkeypatch.setattr(transport, "_p2p", lambda kind, tensor, peer, group: tensor)
    monkeypatch.setattr(transport, "_batch", batch)
    (work,) = Elsewhere().post([(own, 1)], [(coming, 1)])
    assert given[1] is not own
    assert float(given[1]) == 5.0
    assert float(coming) == 0.0
    work.wait()
    assert float(coming) == 9.0


class Ordered(TorchTransport):
    """A group that says which messages it started as one operation."""

    def __init__(self) -> None:
        self.posts_ahead, self._deferred = False, []
        self.started: list[tuple[list[float], list[float]]] = []
        self.waited = 0

    def _start(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        self.started.append(([float(t) for t, _ in sends], [float(t) for t, _ in receives]))
        return [self]

    def wait(self) -> None:
        self.waited += 1


def test_receives_that_wait_to_be_started_come_before_later_ones_from_the_same_rank() -> None:
    group = Ordered()
    one, two, three, four, five = (torch.tensor(float(n)) for n in range(1, 6))
    (first,) = group.post([], [(one, 1)])
    (second,) = group.post([], [(two, 2)])
    (third,) = group.post([(five, 1)], [(three, 1)])
    assert group.started == [([5.0], [1.0, 3.0])], "the second is from another rank, and waits on"
    for work in (third, first, first):
        work.wait()
    assert group.waited == 1, "they are one operation"
    (fourth,) = group.post([], [(four, 2)])
    fourth.wait()
    assert group.started[1:] == [([], [2.0, 4.0])]
    second.wait()
    assert (len(group.started), group.waited, group._deferred) == (2, 2, [])


def test_receives_from_two_ranks_take_along_what_comes_before_them_from_either() -> None:
    group = Ordered()
    one, two, three, four = (torch.tensor(float(n)) for n in range(1, 5))
    (first,) = group.post([], [(one, 3)])
    (second,) = group.post([], [(two, 3), (three, 1)])
    (last,) = group.post([], [(four, 2)])
    group.post([(four, 1)], [(four, 1)])
    assert group.started == [([4.0], [1.0, 2.0, 3.0, 4.0])]
    last.wait()
    assert group.started[1:] == [([], [4.0])]
    first.wait()
    second.wait()
    assert len(group.started) == 2


def test_tensors_of_the_device_and_all_of_a_host_s_group_go_as_they_are() -> None:
    group = object.__new__(TorchTransport)
    tensor = torch.ones(1)
    for device in ("cpu", tensor.device.type):
        group._device = device
        assert group._moved(tensor) is tensor
    group._device = "meta"
    assert group._moved(tensor).device.type == group._moved(tensor, empty=True).device.type == "meta"
