"""Other timers than the one that ranks: contracts apart, graphs on a stand-in for ``torch.cuda``, the real profiler."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from figures import Figures

from paceline.base.families.contracts import contract_id
from paceline.families.kernels.core import timers
from paceline.families.kernels.core.point import Point
from paceline.families.kernels.core.reference_timer import ReferenceTimer
from paceline.families.kernels.core.timing_process import kept_memory
from paceline.families.kernels.core.timing_process.graph_replay import WARM_CALLS, Graphs
from paceline.families.kernels.core.timing_process.profiling import CallProfiler
from paceline.families.kernels.core.timing_process.reference_timers import OtherTimers
from paceline.families.kernels.core.timing_process.server import TimedTechnique
from paceline.families.kernels.ops.gemm.run import OPERATOR
from paceline.families.kernels.spec import FAMILY
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine.device import CpuDevice, FakeDevice
from paceline.worker.ranks.session import CaseError, UnsupportedError

pytestmark = pytest.mark.gate

REPLAY_S = 1e-5


class FakeCuda:
    """The part of ``torch.cuda`` that graphs need, on the CPU: a replay runs the captured call again.

    Args:
        replays: What a replay does with the captured call.
        clock_s: Seconds that the events see of a replay; None lets them see what really passes.
    """

    def __init__(
        self,
        replays: Callable[[Callable[[], None]], None] = lambda call: call(),
        clock_s: float | None = None,
    ) -> None:
        self.capturing = False
        self.log: list[str] = []
        self.now_s = 0.0
        self.call: Callable[[], None] = lambda: None
        fake = self

        class CUDAGraph:
            def replay(self) -> None:
                began = time.perf_counter()
                replays(fake.call)
                fake.now_s += clock_s if clock_s is not None else time.perf_counter() - began

        class Stream:
            def wait_stream(self, other: object) -> None:
                fake.log.append("wait")

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.at_s = 0.0

            def record(self) -> None:
                self.at_s = fake.now_s

            def elapsed_time(self, end: Event) -> float:
                return (end.at_s - self.at_s) * 1e3

        self.CUDAGraph, self.Stream, self.Event = CUDAGraph, Stream, Event

    def current_stream(self) -> Any:
        return self.Stream()

    def synchronize(self) -> None:
        if self.capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    @contextlib.contextmanager
    def stream(self, side: object) -> Iterator[None]:
        self.log.append("side")
        yield

    @contextlib.contextmanager
    def graph(self, graph: object, *, stream: object) -> Iterator[None]:
        self.capturing = True
        self.log.append("capture")
        try:
            yield
        except BaseException as error:
            raise RuntimeError("the capture ended in an error") from error
        finally:
            self.capturing = False


class Multiply:
    """An honest product."""

    def __init__(self, problem: object) -> None:
        pass

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.mm(a, b, out=c)


class DirectProcess:
    """A technique in this process: messages go straight to it."""

    def __init__(self, factory: Any, fake: FakeCuda | None = None) -> None:
        self.served = TimedTechnique(
            {"device": "cpu", "threads": torch.get_num_threads(), "options": {}, "reference_timer": "none"}
        )
        self.served.factory = factory
        self.served.graphs = Graphs(fake) if fake is not None else None

    def ask(self, message: dict[str, Any], *, timeout_s: float, descriptors: Any = ()) -> dict[str, Any]:
        began = time.perf_counter_ns()
        reply = self.served.answer(message, [os.dup(d) for d in descriptors])
        return {**reply, "wall_ns": time.perf_counter_ns() - began}


@pytest.fixture(autouse=True)
def _collector_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "begin", lambda: None)
    monkeypatch.setattr(kept_memory, "collect", lambda: None)


def candidate_of(factory: Any, fake: FakeCuda | None = None) -> Any:
    params = {"m": 20, "n": 30, "k": 40}
    point = Point(operator=OPERATOR, params=params, dtype=torch.float32, device="cpu", timeout_s=30)
    return SimpleNamespace(
        point=point,
        process=DirectProcess(factory, fake),
        draws=point.draw([1, 2]),
        rng=random.Random(3),
        trial_s=1e-4,
    )


def replayed(
    factory: Any, fake: FakeCuda, *, allowed_ns: float = 1e9, floor: Callable[[float], float] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    device: Any = SimpleNamespace(torch_type="cuda", no_graphs=None)
    return timers.time_again(
        candidate_of(factory, fake), device, "graph-replay", floor=floor, allowed_ns=allowed_ns
    )


def test_every_timer_has_a_contract_of_its_own() -> None:
    names = ["latency", "torch_benchmark_s", *timers.METRICS.values()]
    metrics = [FAMILY.metric(name) for name in names]
    assert len({contract_id("kernels", m) for m in metrics}) == len(names) == 5
    assert len({m.contract["timer"] for m in metrics}) == len(names)


def test_a_call_is_warmed_up_on_a_side_stream_before_it_is_captured() -> None:
    fake, calls = FakeCuda(clock_s=REPLAY_S), []

    def call() -> None:
        calls.append(fake.capturing)
        fake.call = lambda: calls.append(True)

    graphs = Graphs(fake)
    assert graphs.capture(call) is None
    assert calls == [False] * WARM_CALLS + [True]
    assert fake.log == ["wait", "side", "wait", "capture"]
    assert graphs.replay(50) == round(50 * REPLAY_S * 1e9)
    assert len(calls) == WARM_CALLS + 1 + 50


def test_a_call_that_waits_for_the_device_cannot_be_captured() -> None:
    fake = FakeCuda()
    reason = Graphs(fake).capture(fake.synchronize)
    assert reason == "it cannot be captured: RuntimeError: operation not permitted when stream is capturing"


def test_a_breach_during_the_capture_is_not_hidden_by_the_capture_that_it_broke() -> None:
    fake = FakeCuda()

    def call() -> None:
        if fake.capturing:
            raise ContractBreachError("it opened a socket")

    with pytest.raises(ContractBreachError, match="it opened a socket"):
        Graphs(fake).capture(call)


def remembering(fake: FakeCuda) -> Any:
    """Return a product that the fake can replay: the captured call computes again from the same tensors."""

    class Remembering(Multiply):
        def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().run(a, b, c)
            if fake.capturing:
                fake.call = lambda: torch.mm(a, b, out=c)

    return Remembering


def test_a_replayed_call_is_judged_on_inputs_that_came_after_the_capture() -> None:
    fake = FakeCuda()
    metrics, absent = replayed(remembering(fake), fake)
    assert absent == {}
    samples = metrics["graph_latency"]["samples"]
    assert len(samples) == timers.GRAPH_SAMPLES
    assert 1e-7 < min(samples) < 1.0  # seconds


def test_the_time_of_one_replay_is_the_events_time_divided_by_the_replays() -> None:
    fake = FakeCuda(clock_s=REPLAY_S)
    metrics, _ = replayed(remembering(fake), fake)
    assert metrics["graph_latency"]["samples"] == pytest.approx([REPLAY_S] * timers.GRAPH_SAMPLES)


def test_a_graph_that_computes_nothing_has_no_time() -> None:
    fake = FakeCuda(replays=lambda call: None, clock_s=REPLAY_S)
    metrics, absent = replayed(Multiply, fake)
    assert metrics == {}
    assert "a replay computes something else" in absent["graph_latency"]
    assert "NaN" in absent["graph_latency"]


def test_what_was_decided_at_the_capture_shows_when_inputs_change() -> None:
    fake = FakeCuda()

    class Decided(Multiply):
        def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().run(a, b, c)
            if fake.capturing:
                result = c.clone()
                fake.call = lambda: c.copy_(result)

    metrics, absent = replayed(Decided, fake)
    assert metrics == {}
    assert "outside the bound" in absent["graph_latency"]


def test_a_technique_that_synchronises_has_no_graph_and_keeps_its_latency() -> None:
    fake = FakeCuda()

    class Waits(Multiply):
        def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().run(a, b, c)
            fake.synchronize()

    assert replayed(Waits, fake) == (
        {},
        {
            "graph_latency": "it cannot be captured: RuntimeError: operation not permitted when stream is capturing"
        },
    )


@pytest.mark.parametrize(
    ("clock_s", "allowed_ns", "reason"),
    [(0.0, 1e9, "its clock says 0 ns"), (1e-9, 0.0, "clocks disagree: the judge waited")],
)
def test_events_that_leave_time_out_are_not_believed(clock_s: float, allowed_ns: float, reason: str) -> None:
    fake = FakeCuda(clock_s=clock_s)
    metrics, absent = replayed(remembering(fake), fake, allowed_ns=allowed_ns)
    assert metrics == {}
    assert absent["graph_latency"].startswith(reason)


def test_a_replay_faster_than_the_device_ends_the_case() -> None:
    fake = FakeCuda(clock_s=REPLAY_S)
    with pytest.raises(CaseError, match=r"graph_latency of 1e-05 s is below the 0\.001 s"):
        replayed(remembering(fake), fake, floor=lambda _: 1e-3)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (
            CpuDevice(),
            {
                "host_latency": "on a CPU latency itself is timed by the host's clock",
                "graph_latency": "a CPU has no graph of launches to replay",
            },
        ),
        (
            FakeDevice({}),
            {
                "host_latency": "on a CPU latency itself is timed by the host's clock",
                "graph_latency": "the fake device launches nothing",
                "profiled_time": "the fake device computes nothing",
            },
        ),
    ],
    ids=["cpu", "fake"],
)
def test_a_timer_that_a_device_lacks_is_absent_with_the_reason(
    device: Any, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(timers._TIMES, "profiler", _without_profiler(timers._TIMES["profiler"]))
    _, absent = timers.time_again(candidate_of(Multiply), device, "all", floor=None, allowed_ns=1e9)
    assert absent == expected


def _without_profiler(original: Any) -> Any:
    return lambda candidate, device, ns: original(candidate, device, ns) if device.no_profiler else [1.0]


def test_nothing_is_timed_again_unless_it_is_asked_for() -> None:
    assert timers.time_again(candidate_of(Multiply), CpuDevice(), "none", floor=None, allowed_ns=0) == (
        {},
        {},
    )


def test_a_call_is_profiled_as_often_as_is_said() -> None:
    metrics, absent = timers.time_again(
        candidate_of(Multiply), CpuDevice(), "profiler", floor=None, allowed_ns=0
    )
    assert absent == {}
    samples = metrics["profiled_time"]["samples"]
    assert len(samples) == timers.PROFILED_CALLS


@pytest.mark.measured
def test_the_profiled_time_is_that_of_the_operators(figure: Figures) -> None:
    profiler, guard = CallProfiler(torch.device("cpu")), Guard()
    small, large = torch.randn(32, 32), torch.randn(700, 700)
    torch.mm(large, large)  # wakes torch's threads, as a process's earlier calls did
    took = []
    for factor in (small, large):
        began = time.perf_counter()
        seconds = profiler.seconds(guard, torch.mm, (factor, factor))
        assert 0 < seconds < time.perf_counter() - began
        took.append(seconds)
    figure("a large product over a small one", took[1] / took[0], unit="ratio", least=5)


def test_a_call_without_operators_has_no_profiled_time() -> None:
    profiler = CallProfiler(torch.device("cpu"))
    assert profiler.seconds(Guard(), lambda: None, ()) == 0


def test_a_call_that_is_wrong_while_it_is_profiled_ends_the_case() -> None:
    class LazyWhenWatched(Multiply):
        def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            if not torch.autograd.profiler._is_profiler_enabled:
                super().run(a, b, c)

    with pytest.raises(CaseError, match="call under another timer: c holds NaN"):
        timers.time_again(candidate_of(LazyWhenWatched), CpuDevice(), "profiler", floor=None, allowed_ns=0)


def test_a_call_that_replaces_a_part_of_the_profiler_is_refused_and_the_part_put_back() -> None:
    original = torch.autograd.profiler.profile.__exit__

    def run() -> None:
        torch.autograd.profiler.profile.__exit__ = lambda *arguments: None  # type: ignore[method-assign]

    profiler = CallProfiler(torch.device("cpu"))
    with pytest.raises(
        ContractBreachError, match=r"it replaced torch\.autograd\.profiler\.profile\.__exit__"
    ):
        profiler.seconds(Guard(), run, ())
    assert torch.autograd.profiler.profile.__exit__ is original


def test_a_call_that_fails_under_the_profiler_has_no_profiled_time() -> None:
    class Fails(Multiply):
        def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
            super().run(a, b, c)
            if torch.autograd.profiler._is_profiler_enabled:
                raise RuntimeError("no")

    candidate = candidate_of(Fails)
    serve = candidate.process.ask

    def ask(message: dict[str, Any], **rest: Any) -> Any:
        try:
            return serve(message, **rest)
        except RuntimeError as error:
            raise CaseError("crashed", f"RuntimeError: {error}") from error

    candidate.process.ask = ask
    _, absent = timers.time_again(candidate, CpuDevice(), "profiler", floor=None, allowed_ns=0)
    assert absent == {"profiled_time": "crashed: RuntimeError: no"}


class FakeDoBench:
    """Stands in for ``triton.testing.do_bench``: calls three times, and answers in milliseconds."""

    def __call__(self, function: Callable[[], None], *, return_mode: str) -> float:
        assert return_mode == "median"
        for _ in range(3):
            function()
        return 0.25


def beside(timer: str, do_bench: Any = None) -> tuple[ReferenceTimer, Any]:
    candidate = candidate_of(Multiply)
    candidate.label, candidate.failure = "mm", None
    candidate.point.make(candidate.process, candidate.draws, 1)
    change, _ = candidate.point.change(0, 0)
    candidate.process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=30)
    served = candidate.process.served
    served.others = OtherTimers(served.device, timer)
    served.others._do_bench = do_bench
    return ReferenceTimer(candidate, timer), candidate


@pytest.mark.measured
def test_another_timer_times_the_same_call(figure: Figures) -> None:
    other, candidate = beside("torch-benchmark")
    least_s = min(other.observe()[0] for _ in range(3))  # one may have waited for a core
    figure("time of a call by torch's timer", least_s, unit="s", least=1e-7, most=1e-2)
    other, candidate = beside("do-bench", FakeDoBench())
    assert other.observe() == (0.25e-3, 0)
    assert other.label == "mm by do-bench"
    assert len(other.costs_s) == 1
    assert candidate.failure is None


def test_do_bench_without_an_accelerator_is_unsupported() -> None:
    other, _ = beside("do-bench")
    with pytest.raises(UnsupportedError, match="do_bench needs cuda and triton"):
        other.observe()
