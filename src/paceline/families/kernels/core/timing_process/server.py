"""Inside a timing process: one technique computes, with its inputs and outputs, and knows neither oracle nor rivals.

Everything that decides is captured before the technique is imported: the clock, the functions that copy, fill and
compare. The technique's calls run inside the fences of ``worker.fences.guard``; the judging process keeps a clock of
its own. One class with a method for each thing that a judge asks for: all of them work on the same sets of inputs and
outputs.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import random
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.api.problem import TORCH_DTYPES, Problem
from paceline.families.kernels.core.planning.promises import Compilation
from paceline.families.kernels.core.sealed import all_loaded
from paceline.families.kernels.core.timing_process import (
    graph_replay,
    kept_memory,
    passes,
    profiling,
    reference_timers,
)
from paceline.families.kernels.core.timing_process.idle_kernel import Idle
from paceline.families.kernels.core.timing_process.pauses import Pause
from paceline.families.kernels.core.timing_process.tasks import has_children, num_tasks, tasks_of_pools
from paceline.families.kernels.core.timing_process.working_set import WorkingSet, drawn_anew
from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine.memory import FreeBlocks, keep_freed_memory
from paceline.worker.ranks.loading import load
from paceline.worker.ranks.session import CaseError, UnsupportedError

# Bound at import, before a technique could replace them; ``guard`` looks at the rest.
_perf_ns = time.perf_counter_ns
_empty = torch.empty
_copy = torch.Tensor.copy_
_type = type
_random = random.SystemRandom()
_Tensor = torch.Tensor
NUM_PROBES = 6
"""Elements that are read when a pass ends and must not change afterwards."""
ALL_DTYPES = {
    **TORCH_DTYPES,
    **{"int64": torch.int64, "uint8": torch.uint8, "float8_e4m3fn": torch.float8_e4m3fn},
}


def serve(channel: Channel, config: dict[str, Any]) -> int:
    """Answer requests until the judge is gone; return the process's exit code."""
    return serve_with(TimedTechnique(config), channel)


def serve_with(served: TimedTechnique, channel: Channel) -> int:
    """Answer requests by a technique until the judge is gone; each answer has the number of its question."""
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return 0
        number = {"id": message.pop("id")} if "id" in message else {}
        try:
            reply = served.answer(message, descriptors)
        except ContractBreachError as error:
            reply = {"status": "refused", "reason": str(error)}
        except UnsupportedError as error:
            reply = {"status": "unsupported", "reason": str(error)}
        except CaseError as error:
            reply = {"status": error.status, "reason": error.reason, "detail": error.detail}
        except BaseException as error:  # a technique may raise anything, SystemExit too
            reply = _crash(error)
        channel.send({**reply, **number})


def _crash(error: BaseException) -> dict[str, Any]:
    text = f"{type(error).__name__}: {error}"
    memory = isinstance(error, MemoryError) or any(
        sign in text.lower() for sign in ("out of memory", "can't allocate memory", "not enough memory")
    )
    return {
        "status": "out_of_memory" if memory else "crashed",
        "reason": text[:500],
        "detail": "".join(traceback.format_exception(error, limit=12))[-4000:],
    }


class TimedTechnique:
    """One technique with its tensors."""

    any_source = False
    """Whether a technique may import and use what it likes."""

    def __init__(self, config: dict[str, Any], guard: Guard | None = None) -> None:
        self.guard = guard or Guard(all_loaded(), threads=True)
        self.config = config
        self.device = torch.device(config["device"])
        self.compiles = False
        self.factory: Any = None
        self.requests: Any = None
        """Module that answers requests which the operation alone has."""
        self.instance: Any = None
        self.region: mmap.mmap | None = None
        self.variants: list[list[Tensor]] = []
        self.packed: list[tuple[Tensor, ...]] = []
        self.num_weights = 0
        self.rolled: int | None = None
        self.sets: list[WorkingSet] = []
        self.outputs: list[dict[str, Any]] = []
        self.captured = False
        """Whether a graph computes on the first working set."""
        self.probes: list[tuple[WorkingSet, tuple[tuple[int, int], bytes]]] = []
        self.pause: Pause | None = None
        """Of the last timed pass."""
        self.generator = torch.Generator(self.device)
        # From the system: new inputs must not be drawn from a seed that a technique could know.
        self.generator.seed()
        self.called: list[WorkingSet] = []
        self.timed = False
        self.tasks = 0
        self.threads = int(config["threads"])
        self._flush: Tensor | None = None
        self._launch_ns = 0
        """What the host needed for a call when it was slowest; 0 before the first timed one."""
        self._cycles_told = self._cycles_seen = passes.cycles_per_ns(self.device)
        self._free_blocks = FreeBlocks()
        if self.device.type == "cpu":
            keep_freed_memory()
        self.graphs = graph_replay.Graphs(torch.cuda) if self.device.type == "cuda" else None
        self.others = reference_timers.OtherTimers(self.device, str(config["reference_timer"]))
        self.profiler = profiling.CallProfiler(self.device)
        torch.set_num_threads(self.threads)
        self.most_tasks = tasks_of_pools(self.threads) if self.device.type == "cpu" else 0
        # Last: whatever exists by now is not the technique's.
        kept_memory.begin()

    def answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Do what a message asks for."""
        handler: Callable[..., dict[str, Any]] = getattr(self, "do_" + message["do"])
        if descriptors:
            self._map(descriptors, int(message["region_bytes"]))
        return handler(message)

    def do_operation(self, message: dict[str, Any]) -> dict[str, Any]:
        """Do what the operation alone asks for."""
        assert self.requests is not None
        answer: dict[str, Any] = self.requests.answer(self, message)
        return {"ok": True, **answer}

    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import the technique, and before it what answers the operation's own requests; or take the idle kernel."""
        if message.get("idle"):
            self.factory = Idle
            return {"ok": True}
        config = self.config
        if "requests" in message:
            self.requests = importlib.import_module(message["requests"])
            # Before the technique is imported, which must not change who answers for it.
            self.guard.seal((self.requests,))
        loaded = load(
            config["module"],
            config["technique"],
            "kernels",
            Path(config["job"]),
            self.guard,
            any_source=self.any_source,
        )
        if loaded.refusal is not None:
            raise loaded.refusal
        assert loaded.info is not None
        self.factory = loaded.factory
        declared = loaded.info.promised(Compilation).compiles
        self.compiles = declared is True or (declared == "accelerator" and self.device.type != "cpu")
        if self.compiles:
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            # Compilers write files larger than a log may be; the hard limit still holds.
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        return {"ok": True}

    def do_make(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make an instance for a point and take the point's draws from the shared region."""
        problem = Problem(
            operation=message["operation"],
            dtype=TORCH_DTYPES[message["dtype"]],
            device=self.device,
            params=message["params"],
        )
        with self.guard.watch(building=self.compiles):  # an instance may have finalizers
            self.instance = None
            self._forget_pass()
            self.variants, self.packed = [], []
        self.num_weights, self.rolled = message["num_weights"], message["rolled"]
        for tensors in message["variants"]:
            # A copy: a technique computes on memory of its own process, not on pages that its judge maps too.
            self.variants.append([self._read(t).to(self.device, copy=True) for t in tensors])
        with self.guard.watch(building=self.compiles):
            self.instance = self.factory(problem, **self.config["options"])
        # Between making and packing: what packing adds beside what it returns is hidden weights.
        before = self._kept_bytes(strings=True) if self.num_weights else 0
        with self.guard.watch(building=self.compiles):
            self._pack()
        if not self.num_weights:
            return {"ok": True, "weight_bytes": None}
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.packed[0]}
        hidden = max(self._kept_bytes(strings=True) - before, 0) // len(self.variants)
        return {"ok": True, "weight_bytes": sum(storages.values()) + hidden}

    def _pack(self) -> None:
        pack = getattr(self.instance, "pack", None)
        for variant in self.variants:
            weights = tuple(variant[len(variant) - self.num_weights :])
            # Of copies: packing may work in place, and the draws are needed again.
            packed = pack(*(w.clone() for w in weights)) if pack and self.num_weights else weights
            # A subclass of Tensor could run code of its own in every operator of the harness.
            if not all(_type(t) is _Tensor for t in packed):
                raise CaseError("refused", "pack() returned something that is not a plain tensor")
            self.packed.append(tuple(packed))

    def _kept_bytes(self, *, strings: bool = False) -> int:
        """Return what the technique keeps beside the tensors that this process holds for it."""
        ours = [t for tensors in (*self.variants, *self.packed) for t in tensors]
        ours += [t for working in self.sets for t in (*working.inputs, *working.outputs)]
        return kept_memory.kept_bytes(
            [*ours, *([] if self._flush is None else [self._flush])], strings=strings
        )

    def do_sets(self, message: dict[str, Any]) -> dict[str, Any]:
        """Allocate working sets (inputs of a call and its outputs), and one more for calls before a timed pass."""
        self.outputs = message["outputs"]
        self._allocate(int(message["count"]))
        return {"ok": True}

    def _allocate(self, count: int) -> None:
        varied = self.variants[0][: len(self.variants[0]) - self.num_weights]
        self._forget_pass()
        self.captured = False
        # One more, for the calls that wake the core up: they must not see a pass's inputs.
        for _ in range(count + 1):
            inputs = [_empty(t.shape, dtype=t.dtype, device=self.device) for t in varied]
            outputs = [
                _empty(tuple(o["shape"]), dtype=ALL_DTYPES[o["dtype"]], device=self.device)
                for o in self.outputs
            ]
            self.sets.append(WorkingSet(inputs, outputs))

    def _forget_pass(self) -> None:
        self.sets, self.called, self.probes, self.pause = [], [], [], None

    def do_prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Fill working sets with varied inputs, poison their outputs, and set the caches as the protocol says.

        Every pass gets new memory: a call that kept the tensors of an earlier pass could otherwise compute all others'
        results at once, and the calls before a pass, on which no clock is, the result of its only call. A captured
        graph computes where it was captured.
        """
        count = len(self.sets) - 1
        with self.guard.watch(building=self.compiles):
            if not self.captured:
                self._forget_pass()
            kept_memory.collect()
        self.guard.check_operators()
        if not self.captured:
            self._allocate(count)
        changes = message["changes"]
        for working, change in zip([self.sets[-1], *self.sets], [changes[-1], *changes[:-1]], strict=False):
            variant = self.variants[change["variant"]]
            # Drawn whether it is used or not: a pass on known inputs then finds memory and caches as one on new ones.
            drawn = drawn_anew(variant[: len(working.inputs)], self.generator) if "new" in change else variant
            working.fill(drawn if change.get("new") else variant, change, self.rolled)
            working.weights = self.packed[change["variant"]]
        self._synchronize()
        return {"ok": True}

    def do_flush(self, message: dict[str, Any]) -> dict[str, Any]:
        """Wake the device up, then evict what the caches hold; a pass that does neither must follow.

        In this order: weights that a pass shares with the calls that wake the device up would be cached again.
        """
        with self.guard.watch():
            _, quickest = passes.wake(self.instance.run, self.sets[-1].arguments(), self.device)
        self._launch_ns = self._launch_ns or quickest
        size = int(message["bytes"])
        if self._flush is None or self._flush.numel() != size:
            self._flush = torch.zeros(size, dtype=torch.uint8, device=self.device)
        # Twice the last-level cache passes through it, which evicts the sets that were just written.
        self._flush.add_(1)
        self._synchronize()
        return {"ok": True}

    def do_run(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one call on each of the first working sets; return the pass's time on this process's clocks.

        The judge's clock stops at the answer, so whatever can wait is left to ``settle``, which must follow.
        """
        called = self.called = self.sets[: int(message["count"])]
        arguments = [working.arguments() for working in called]
        self.timed = message["timed"]
        # A technique may compile until its calls are timed, not while they are.
        building = self.compiles and not self.timed
        # Drawn while no code of the technique runs. A pass of one call is looked at when it is over.
        pausing = self.timed and len(called) > 1 and message.get("clock") != "host"
        self.pause = Pause(called, self.device) if pausing else None
        # Counted before the fences open, so that a thread which the call leaves behind shows afterwards.
        self.tasks = num_tasks()
        wake_ns, told = 0, {}
        self.guard.open(building=building)
        try:
            if self.timed:
                if not message["flushed"]:
                    wake_ns, quickest = passes.wake(self.instance.run, self.sets[-1].arguments(), self.device)
                    self._launch_ns = self._launch_ns or quickest
                if message["hot"]:
                    wake_ns += passes.touch(arguments)
            if self.device.type == "cpu":
                elapsed_ns, busy_ns = passes.host_pass(self.instance.run, arguments, self.pause)
            elif message.get("clock") == "host":
                elapsed_ns, told["queued_ns"] = passes.synchronous_pass(self.instance.run, arguments)
                busy_ns = elapsed_ns
            else:
                found = passes.event_pass(
                    self.instance.run,
                    arguments,
                    self.device,
                    launch_ns=self._launch_ns,
                    cycles=self._cycles_told,
                    cycles_seen=self._cycles_seen,
                    pause=self.pause,
                )
                elapsed_ns = busy_ns = found.elapsed_ns
                self._cycles_seen = found.cycles_seen
                told = {"blocked_ns": found.blocked_ns, "queued_ns": found.queued_ns}
                # The slowest so far, so that no later pass is timed at the rate of its launches.
                self._launch_ns = max(self._launch_ns, found.queued_ns // len(arguments))
        finally:
            self.guard.close()
        if self.device.type == "cpu":
            # Right after the clock: a thread that goes on writing after the call returned changes what is probed here.
            self.probes = [(working, working.probe()) for working in _some(called)]
        return {"ok": True, "elapsed_ns": elapsed_ns, "busy_ns": busy_ns, "wake_ns": wake_ns, **told}

    def do_settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Check what the calls of ``run`` left behind.

        Raises:
            CaseError: Exchanged outputs, outputs that were written in another's call, threads or processes.
        """
        running = num_tasks()
        self.guard.check()
        for working in self.called:
            working.check_outputs()
        if self.pause is not None:
            self.pause.check()
        if self.device.type == "cpu" and not self.compiles and running > self.most_tasks:
            raise CaseError("refused", f"{running} threads after a call, {self.most_tasks} allowed")
        if self.timed and running > self.tasks:
            raise CaseError("refused", "a call left a thread running")
        # Compiling techniques may start processes, but a process that lives on could compute beside a call.
        if self.timed and self.compiles and has_children():
            raise CaseError("refused", "a process of its own lives while calls are timed")
        return {"ok": True}

    def do_capture(self, message: dict[str, Any]) -> dict[str, Any]:
        """Capture a call on the first working set as a graph; its tensors must stay where they are from now on."""
        assert self.graphs is not None
        self.captured = True
        arguments = self.sets[0].arguments()

        def call() -> None:
            with self.guard.watch(building=self.compiles):
                self.instance.run(*arguments)

        return {"ok": True, "impossible": self.graphs.capture(call)}

    def do_replay(self, message: dict[str, Any]) -> dict[str, Any]:
        """Replay the captured call; return the nanoseconds of all replays."""
        assert self.graphs is not None
        self.probes, self.pause = [], None
        return {"ok": True, "elapsed_ns": self.graphs.replay(int(message["count"]))}

    def do_profile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Profile a call on the first working set, after one on inputs of its own."""
        with self.guard.watch():
            self.instance.run(*self.sets[-1].arguments())
        working = self.sets[0]
        seconds = self.profiler.seconds(self.guard, self.instance.run, working.arguments())
        working.check_outputs()
        self.probes = [(working, working.probe())] if self.device.type == "cpu" else []
        return {"ok": True, "seconds": seconds}

    def do_benchmark(self, message: dict[str, Any]) -> dict[str, Any]:
        """Time calls on the first working set with the timer of another tool."""
        with self.guard.watch():
            seconds = self.others.seconds(
                message["timer"], self.instance.run, self.sets[0].arguments(), int(message["number"])
            )
        return {"ok": True, "seconds": seconds}

    def do_fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put the outputs of all asked working sets into the shared region; report changed inputs.

        Raises:
            CaseError: An output was written after its call had returned.
        """
        assert self.region is not None
        self.guard.check_operators()
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.region))
        changed = None
        for number, places in enumerate(message["places"]):
            working = self.sets[number]
            if self.device.type == "cpu":
                working.copy_outputs([base + place["offset"] for place in places])
            else:
                for tensor, place in zip(working.outputs, places, strict=True):
                    _copy(self._view(place), tensor)
            if number in message["compare"] and changed is None:
                changed = working.changed_input(self.variants, self.rolled)
        # After everything was copied: whoever wrote late had until now to be seen.
        if any(working.changed_since(probe) for working, probe in self.probes):
            raise CaseError("incorrect", "an output was written after its call had returned")
        return {"ok": True, "changed_input": changed}

    def do_trim(self, message: dict[str, Any]) -> dict[str, Any]:
        """Make the next call's need show: free memory goes back to the system; tell what the instance keeps."""
        kept_bytes = self._kept_bytes()
        if self.device.type == "cpu":
            self._free_blocks.take()
        else:
            torch.accelerator.reset_peak_memory_stats()
        return {"ok": True, "kept_bytes": kept_bytes}

    def do_peak(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the growth of the accelerator allocator's peak since ``trim``."""
        peak = torch.accelerator.max_memory_allocated() - torch.accelerator.memory_allocated()
        return {"ok": True, "peak_bytes": peak}

    def _map(self, descriptors: Sequence[int], size: int) -> None:
        self.region = mmap.mmap(descriptors[0], size)
        close_all(descriptors)

    def _view(self, place: dict[str, Any]) -> Tensor:
        assert self.region is not None
        count = torch.Size(place["shape"]).numel()
        dtype = ALL_DTYPES[place["dtype"]]
        return torch.frombuffer(self.region, dtype=dtype, count=count, offset=place["offset"]).view(
            place["shape"]
        )

    def _read(self, place: dict[str, Any]) -> Tensor:
        return self._view(place)

    def _synchronize(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize()


def _some(sets: Sequence[WorkingSet]) -> list[WorkingSet]:
    """Choose working sets to probe: the last one, which is written last, and some others."""
    return [sets[-1]] * 2 + _random.choices(sets, k=NUM_PROBES)
