"""The process in which one technique computes: it holds inputs and outputs, and knows neither oracle nor rivals.

Everything that decides is captured before the technique is imported: the clock, the functions that copy, fill and
compare. The technique's calls run inside the fences of ``worker.guard``; the judging process keeps a clock of its own.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from paceline.families.kernels.channel import Channel, ChannelClosedError, close_all
from paceline.families.kernels.problem import TORCH_DTYPES, WAKE_NS, Problem
from paceline.worker.guard import ContractBreachError, Guard
from paceline.worker.loading import load
from paceline.worker.memory import find_malloc_trim
from paceline.worker.session import CaseError, UnsupportedError

_perf_ns = time.perf_counter_ns
_amax = torch.amax
_equal, _mul, _empty = torch.equal, torch.mul, torch.empty
_copy, _fill, _roll = torch.Tensor.copy_, torch.Tensor.fill_, torch.Tensor.roll
_Timer = Timer
_type = type
_Tensor = torch.Tensor
BLOCKING_CYCLES = 2_000_000
"""Cycles for which an accelerator waits while a pass's calls are queued up."""
ALL_DTYPES = {**TORCH_DTYPES, "int64": torch.int64, "uint8": torch.uint8}


def serve(channel: Channel, config: dict[str, Any]) -> int:
    """Answer requests until the judge is gone; return the process's exit code."""
    served = _Cell(config)
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return 0
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
        channel.send(reply)


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


class _Cell:
    """One technique with its tensors."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.guard = Guard()
        self.config = config
        self.device = torch.device(config["device"])
        self.compiles = False
        self.factory: Any = None
        self.instance: Any = None
        self.region: mmap.mmap | None = None
        self.variants: list[list[Tensor]] = []
        self.packed: list[tuple[Tensor, ...]] = []
        self.num_weights = 0
        self.rolled: int | None = None
        self.sets: list[_WorkingSet] = []
        self._flush: Tensor | None = None
        self._malloc_trim = find_malloc_trim()
        torch.set_num_threads(int(config["threads"]))

    def answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Do what a message asks for."""
        handler: Callable[..., dict[str, Any]] = getattr(self, "do_" + message["do"])
        if descriptors:
            self._map(descriptors, int(message["region_bytes"]))
        return handler(message)

    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import the technique."""
        config = self.config
        loaded = load(config["module"], config["technique"], "kernels", Path(config["job"]), self.guard)
        if loaded.refusal is not None:
            raise loaded.refusal
        assert loaded.info is not None
        self.factory = loaded.factory
        declared = loaded.info.properties.get("compiles", False)
        self.compiles = declared is True or (declared == "accelerator" and self.device.type != "cpu")
        if self.compiles:
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
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
        self.instance = None
        self.sets, self.variants, self.packed = [], [], []
        self.num_weights, self.rolled = message["num_weights"], message["rolled"]
        for tensors in message["variants"]:
            self.variants.append([self._read(t).to(self.device, copy=True) for t in tensors])
        with self.guard.watch(building=self.compiles):
            self.instance = self.factory(problem, **self.config["options"])
            pack = getattr(self.instance, "pack", None)
            for variant in self.variants:
                weights = tuple(variant[len(variant) - self.num_weights :])
                kept = pack(*(w.clone() for w in weights)) if pack and self.num_weights else weights
                if not all(_type(t) is _Tensor for t in kept):
                    raise CaseError("refused", "pack() returned something that is not a plain tensor")
                self.packed.append(tuple(kept))
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.packed[0]}
        return {"ok": True, "weight_bytes": sum(storages.values()) if self.num_weights else None}

    def do_sets(self, message: dict[str, Any]) -> dict[str, Any]:
        """Allocate working sets (inputs of a call and its outputs), and one more for calls before a timed pass."""
        self.sets = []
        varied = self.variants[0][: len(self.variants[0]) - self.num_weights]
        for _ in range(int(message["count"]) + 1):
            inputs = [torch.empty_like(t) for t in varied]
            outputs = [
                _empty(tuple(o["shape"]), dtype=ALL_DTYPES[o["dtype"]], device=self.device)
                for o in message["outputs"]
            ]
            self.sets.append(_WorkingSet(inputs, outputs))
        return {"ok": True}

    def do_prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Fill working sets with varied inputs, poison their outputs, and set the caches as the protocol says."""
        changes = message["changes"]
        for working, change in zip([self.sets[-1], *self.sets], [changes[-1], *changes[:-1]], strict=False):
            working.fill(self.variants[change["variant"]], change, self.rolled)
            working.weights = self.packed[change["variant"]]
        flush = int(message.get("flush_bytes", 0))
        if flush:
            if self._flush is None or self._flush.numel() != flush:
                self._flush = torch.zeros(flush, dtype=torch.uint8, device=self.device)
            self._flush.add_(1)
        self._synchronize()
        return {"ok": True}

    def do_run(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one call on each of the first working sets; return the pass's time on this process's clocks."""
        count = int(message["count"])
        arguments = [working.arguments() for working in self.sets[:count]]
        building = self.compiles and not message["timed"]
        before = None if building else _num_tasks()
        with self.guard.watch(building=building):
            wake_ns = 0
            if message["timed"]:
                wake_ns = _wake(self.instance.run, self.sets[-1].arguments(), self.device)
                if message["hot"]:
                    wake_ns += _touch(arguments)
            if self.device.type == "cpu":
                elapsed_ns = _host_pass(self.instance.run, arguments)
            else:
                elapsed_ns = _event_pass(self.instance.run, arguments, self.device)
        for working in self.sets[:count]:
            working.check_outputs()
        tasks = _num_tasks()
        return {
            "ok": True,
            "elapsed_ns": elapsed_ns,
            "wake_ns": wake_ns,
            "new_tasks": 0 if before is None else tasks - before,
        }

    def do_benchmark(self, message: dict[str, Any]) -> dict[str, Any]:
        """Time one block of calls on the first working set with PyTorch's timer."""
        timer = _Timer(
            stmt="run(*arguments)",
            globals={"run": self.instance.run, "arguments": self.sets[0].arguments()},
            num_threads=torch.get_num_threads(),
        )
        with self.guard.watch():
            measurement = timer.timeit(int(message["number"]))
        return {"ok": True, "mean_s": measurement.mean}

    def do_predict(self, message: dict[str, Any]) -> dict[str, Any]:
        """Let a predictor learn from known times and predict unknown ones."""
        problem = Problem(
            operation="tile_choice", dtype=torch.float32, device=self.device, params=message["params"]
        )
        start = _perf_ns()
        with self.guard.watch():
            predictor = self.factory(problem, **self.config["options"])
            predictor.fit(np.array(message["known"]), np.array(message["times"]))
            predicted = [float(p) for p in predictor.predict(np.array(message["unknown"]))]
        return {"ok": True, "predicted": predicted, "elapsed_s": (_perf_ns() - start) * 1e-9}

    def do_fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put the outputs of all asked working sets into the shared region; report changed inputs."""
        changed = None
        for number, places in enumerate(message["places"]):
            working = self.sets[number]
            for tensor, place in zip(working.outputs, places, strict=True):
                _copy(self._view(place), tensor)
            if number in message["compare"]:
                changed = changed or working.changed_input(self.variants, self.rolled)
        return {"ok": True, "changed_input": changed}

    def do_trim(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give free memory back to the system, so that the next call's need shows; tell what the instance keeps."""
        if self.device.type == "cpu":
            self._malloc_trim(0)
        else:
            torch.accelerator.reset_peak_memory_stats()
        kept = (
            [v for v in vars(self.instance).values() if isinstance(v, Tensor)]
            if hasattr(self.instance, "__dict__")
            else []
        )
        return {"ok": True, "kept_bytes": sum(t.untyped_storage().nbytes() for t in kept)}

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


class _WorkingSet:
    """Inputs and outputs of one call."""

    def __init__(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.weights: tuple[Tensor, ...] = ()
        self.change: dict[str, Any] = {}
        self._identity = [self._facts(t) for t in outputs]

    @staticmethod
    def _facts(tensor: Tensor) -> tuple[Any, ...]:
        return (
            _type(tensor),
            tensor.data_ptr(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.device,
        )

    def fill(self, variant: Sequence[Tensor], change: dict[str, Any], rolled: int | None) -> None:
        """Write varied inputs and poison the outputs."""
        self.change = change
        for index, (target, source) in enumerate(zip(self.inputs, variant, strict=False)):
            _write(target, source, index, change, rolled)
        for output in self.outputs:
            _fill(output, float("nan"))

    def arguments(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``run``."""
        return (*self.inputs, *self.weights, *self.outputs)

    def check_outputs(self) -> None:
        """Refuse a call that exchanged or resized its output tensors.

        Raises:
            CaseError: It did.
        """
        for before, tensor in zip(self._identity, self.outputs, strict=True):
            if self._facts(tensor) != before:
                raise CaseError("incorrect", "an output tensor was resized or replaced")

    def changed_input(self, variants: Sequence[Sequence[Tensor]], rolled: int | None) -> int | None:
        """Return the number of an input that the call changed, or None."""
        for index, (target, source) in enumerate(
            zip(self.inputs, variants[self.change["variant"]], strict=False)
        ):
            right = torch.empty_like(target)
            _write(right, source, index, self.change, rolled)
            if not _equal(target, right):
                return index
        return None


def _write(target: Tensor, source: Tensor, index: int, change: dict[str, Any], rolled: int | None) -> None:
    factor = change["factors"][index]
    if index == rolled and change["roll"]:
        _copy(target, _roll(source, change["roll"], 0))
    elif factor != 1.0:
        _mul(source, factor, out=target)
    else:
        _copy(target, source)


def _wake(run: Callable[..., None], arguments: tuple[Tensor, ...], device: torch.device) -> int:
    """Call a technique on inputs of their own until a core that had waited for a message is at speed again.

    Returns:
        The nanoseconds that it took.
    """
    start = _perf_ns()
    while _perf_ns() - start < WAKE_NS:
        run(*arguments)
        if device.type != "cpu":
            torch.accelerator.synchronize()
    return _perf_ns() - start


def _touch(arguments: Sequence[tuple[Tensor, ...]]) -> int:
    """Read every tensor of a pass, so that the caches hold what they can of it; return the nanoseconds."""
    start = _perf_ns()
    for tensors in arguments:
        for tensor in tensors:
            _amax(tensor)
    return _perf_ns() - start


def _host_pass(run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]]) -> int:
    start = _perf_ns()
    for tensors in arguments:
        run(*tensors)
    return _perf_ns() - start


def _event_pass(
    run: Callable[..., None], arguments: Sequence[tuple[Tensor, ...]], device: torch.device
) -> int:
    """Time a pass with device events, the device kept busy while the calls are queued."""
    module = getattr(torch, device.type)
    begin, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    sleep = getattr(module, "_sleep", None)
    if sleep is not None:
        sleep(BLOCKING_CYCLES)
    begin.record()
    for tensors in arguments:
        run(*tensors)
    end.record()
    torch.accelerator.synchronize()
    return round(float(begin.elapsed_time(end)) * 1e6)


def _num_tasks() -> int:
    """Return the number of this process's threads, native ones included."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the fastest way, inside a pass
    except OSError:
        return threading.active_count()
