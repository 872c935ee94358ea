"""A candidate in its sandbox: new inputs for each timed call, the judge's own clock, every output judged.

No draw is used twice or scaled, so a memory of earlier inputs is of no use. Inputs appear while every thread of the
candidate is stopped, and the clock runs from before it is let go until all of its threads have stopped again; only then
are outputs copied. What such a pass costs without computing is measured by an empty candidate in another sandbox, in
turn with the candidate's passes, and subtracted.
"""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.core.candidate import Candidate
from paceline.families.kernels.core.ceilings import Floor
from paceline.families.kernels.core.operators import Draw, TensorSpec
from paceline.families.kernels.core.oracle import Check
from paceline.families.kernels.core.point import Point
from paceline.families.kernels.core.sandboxed.handover import LEAST, Handover
from paceline.families.kernels.core.sandboxed.interruptions import Given, Interruptions
from paceline.families.kernels.core.sandboxed.process import Look, SandboxedProcess, TimedCall
from paceline.families.kernels.core.timing_process.client import ALIGNMENT, DTYPE_NAMES, TimingProcess
from paceline.worker.ranks.session import CaseError
from paceline.worker.sandbox import memory
from paceline.worker.timing.interleaved import Series, median

Place = dict[str, Any]
SEED_BITS = 128
"""Of each draw: nobody finds its seed by trying all, not even where weights are handed over before the other inputs."""
IN_A_SANDBOX = "of a candidate in a sandbox only the judge's clock is believed"


class Shared:
    """Memory of a point's passes that one sandbox shares with its judge: inputs it only reads, outputs it writes."""

    def __init__(self, process: SandboxedProcess, point: Point, num_sets: int) -> None:
        self._process, self._point = process, point
        inputs, outputs = point.specs
        given, input_bytes = _places(inputs, num_sets)
        wanted, output_bytes = _places(outputs, num_sets)
        read_only, self._in = memory.shared(input_bytes, read_only=True)
        writable, self._out = memory.shared(output_bytes, read_only=False)
        try:
            process.ask(
                {"do": "share", "bytes": [input_bytes, output_bytes], "inputs": given, "outputs": wanted},
                timeout_s=point.timeout_s,
                descriptors=[read_only, writable],
            )
        finally:
            os.close(read_only)
            os.close(writable)
        self._inputs = [_views(self._in, places, inputs) for places in given]
        self._outputs = [_views(self._out, places, outputs) for places in wanted]
        self._num_varied = len(inputs) - point.operator.num_weights

    def run(
        self, draws: Sequence[Draw], *, flush: Callable[[], None]
    ) -> tuple[TimedCall, list[list[Tensor]]]:
        """Time one pass on new inputs; return its times and copies of its outputs.

        Args:
            draws: One for each call; inputs appear while the candidate is stopped, weights to be packed before.
            flush: Evicts caches, when everything was written.

        Raises:
            CaseError: The candidate failed.
        """
        return self._run([draw.inputs for draw in draws], flush=flush, look=None)

    def run_stopped(
        self,
        given: list[Given],
        interruptions: Interruptions,
        *,
        after_ns: int,
        threads: int,
        flush: Callable[[], None],
    ) -> list[list[Tensor]]:
        """Stop a pass in the middle and change the inputs of calls to come; return copies of its outputs at the end.

        Args:
            given: To each call; those to come are exchanged.
            interruptions: Says what is changed.
            after_ns: Processor time before the stop, of each thread.
            threads: Of the point.
            flush: As in ``run``.

        Raises:
            CaseError: The candidate failed.
        """

        def change() -> None:
            for number, inputs in interruptions.change(given, self._outputs).items():
                # Weights stay: they were packed before.
                self._write(number, inputs[: self._num_varied])

        look = Look(after_ns=after_ns, all_after_ns=after_ns * threads, take=change)
        _, outputs = self._run([one.draw.inputs for one in given], flush=flush, look=look)
        return outputs

    def _run(
        self, inputs: Sequence[Sequence[Tensor]], *, flush: Callable[[], None], look: Look | None
    ) -> tuple[TimedCall, list[list[Tensor]]]:
        for views, tensors in zip(self._inputs, inputs, strict=True):
            for view, tensor in zip(views[self._num_varied :], tensors[self._num_varied :], strict=True):
                view.copy_(tensor)
        self._process.ask({"do": "warm"}, timeout_s=self._point.timeout_s)
        copies: list[list[Tensor]] = []

        def fill() -> None:
            for number, tensors in enumerate(inputs):
                self._write(number, tensors[: self._num_varied])
            for outputs in self._outputs:
                for output in outputs:
                    output.fill_(float("nan"))
            flush()

        def take() -> None:
            copies.extend([output.clone() for output in outputs] for outputs in self._outputs)

        limit = self._point.timeout_s
        call = self._process.timed_call(timeout_s=limit, fill=fill, take=take, look=look)
        return call, copies

    def _write(self, number: int, varied: Sequence[Tensor]) -> None:
        for view, tensor in zip(self._inputs[number], varied, strict=False):
            view.copy_(tensor)


def _places(specs: Sequence[TensorSpec], num_sets: int) -> tuple[list[list[Place]], int]:
    """Return where the tensors of each set lie, and the bytes of all."""
    found: list[list[Place]] = []
    offset = 0
    for _ in range(num_sets):
        found.append([])
        for spec in specs:
            found[-1].append({"offset": offset, "shape": list(spec.shape), "dtype": DTYPE_NAMES[spec.dtype]})
            offset += -(-max(spec.num_bytes, 1) // ALIGNMENT) * ALIGNMENT
    return found, offset


def _views(mapped: mmap.mmap, places: Sequence[Place], specs: Sequence[TensorSpec]) -> list[Tensor]:
    return [
        torch.frombuffer(
            mapped, dtype=spec.dtype, count=torch.Size(spec.shape).numel(), offset=place["offset"]
        ).view(spec.shape)
        for place, spec in zip(places, specs, strict=True)
    ]


class SandboxedCandidate(Candidate):
    """A candidate that passed its gate, timed by its judge alone."""

    process: SandboxedProcess

    def __init__(self, *, idle: Callable[[], SandboxedProcess], **facts: Any) -> None:
        self._open_idle = idle
        self.handover = Handover()
        self.cpu_ns: list[int] = []
        self._flush: Tensor | None = None
        super().__init__(**facts)
        # From the system where nothing is to be repeated: no seed follows from those that were seen before.
        self._seeds = self.rng if self.session.fixed_seed else random.SystemRandom()

    def _trial(self) -> float:
        """Return the time of one call, roughly, by the judge's clock."""
        places = self.point.make(self.process, self.draws[:1], num_sets=1)
        change, _ = self.point.change(0, 0)
        times = []
        for _ in range(3):
            self.process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=self.point.timeout_s)
            times.append(self.process.run(1, timed=False, timeout_s=self.point.timeout_s)["wall_ns"] * 1e-9)
        places.region.close()
        return float(max(min(times), 1e-6))

    def allocate(self, num_sets: int) -> None:
        """Make the instance that is timed, share memory with it and with an empty one, and time empty passes.

        Raises:
            CaseError: The candidate failed.
        """
        self.session.begin(self.block, self.label, "inputs")
        self.num_sets = num_sets
        self.interruptions = Interruptions(self.point, num_sets, self._draw, self._seeds)
        self.places = self._make(self.process)
        self._shared = Shared(self.process, self.point, num_sets)
        idle = self._open_idle()
        self._make(idle)
        self._empty = Shared(idle, self.point, num_sets)
        draws = [self._draw() for _ in range(num_sets)]
        for _ in range(LEAST):
            self._empty_pass(draws)

    def _make(self, process: TimingProcess) -> Any:
        places = self.point.make(process, self.draws, 1)
        change, _ = self.point.change(0, 0)
        # The calls that wake a core up have inputs of their own.
        process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=self.point.timeout_s)
        return places

    def _draw(self) -> Draw:
        point = self.point
        return point.operator.draw(
            point.params,
            point.dtype,
            seed=self._seeds.getrandbits(SEED_BITS),
            magnitude=1.0,
            device=point.device,
        )

    def _empty_pass(self, draws: Sequence[Draw]) -> None:
        try:
            call, _ = self._empty.run(draws, flush=self._evict)
        except CaseError as error:
            raise CaseError("infrastructure", f"the empty candidate: {error.reason}") from error
        self.handover.add(call.wall_ns, call.cpu_ns)

    def _evict(self) -> None:
        if self.flush_bytes:
            if self._flush is None or self._flush.numel() != self.flush_bytes:
                self._flush = torch.zeros(self.flush_bytes, dtype=torch.uint8)
            self._flush.add_(1)

    def _observe(self, *, disputed: bool = False) -> tuple[float, int]:
        stops = bool(self.cpu_ns) and self.interruptions.comes_now()
        # Before or after the pass that counts: from what comes between two passes nothing can be told of the next.
        before = self._seeds.random() < 0.5
        if stops and before:
            self._interrupt()
        draws = [self._draw() for _ in range(self.num_sets)]
        self._empty_pass(draws)
        call, outputs = self._shared.run(draws, flush=self._evict)
        for draw, found in zip(draws, outputs, strict=True):
            self._note(Given(draw=draw).judged(self.point, found))
        self.cpu_ns.append(call.cpu_ns)
        if stops and not before:
            self._interrupt()
        threads = int(self.block.params["threads"])
        elapsed_ns = self.handover.of_a_pass(call.wall_ns, call.cpu_ns, threads)
        return elapsed_ns * 1e-9 / self.num_sets, 0

    def _interrupt(self) -> None:
        """Stop a pass, whose time is not used, in the middle, and change the inputs of calls to come.

        Raises:
            CaseError: The candidate failed, or had read them before their calls.
        """
        given = [Given(draw=self._draw()) for _ in range(self.num_sets)]
        before = given.copy()
        # As before a pass that counts, which nobody there can tell from this one.
        self._empty_pass([one.draw for one in given])
        _, handover_ns = self.handover.recent()
        # The kernel counts the first thread; the others compute at the same time.
        threads = int(self.block.params["threads"])
        pass_ns = median([float(ns) for ns in self.cpu_ns]) / threads
        after_ns = self.interruptions.moment_ns(handover_ns, pass_ns)
        outputs = self._shared.run_stopped(
            given, self.interruptions, after_ns=after_ns, threads=threads, flush=self._evict
        )
        for number, (one, old, found) in enumerate(zip(given, before, outputs, strict=True)):
            if one is not old and old.judged(self.point, found).passed:
                reason = f"call {number + 1} of {self.num_sets} had read its inputs before its turn"
                raise CaseError("incorrect", f"calls of a pass are computed together: {reason}")
            self._note(one.judged(self.point, found))

    def _note(self, check: Check) -> None:
        if not check.passed:
            raise CaseError("incorrect", f"timed call: {check.reason}")
        self.worst_error = max(self.worst_error, check.relative_error)
        self.num_calls += 1

    def _accounted(self, allowance_ns: float, open_idle: Callable[[], TimingProcess]) -> tuple[float, float]:
        """Nothing is unaccounted for where the candidate keeps no clock."""
        return 0.0, 0.0

    def _slowdown(self) -> float:
        """All inputs are new ones."""
        return 1.0

    def result(
        self, item: Series, allowance_ns: float, floor: Floor, open_idle: Callable[[], TimingProcess]
    ) -> dict[str, Any]:
        """Judge the series and measure memory; say what the sandbox cost."""
        while self.failure is None and self.interruptions.wanted:
            self._interrupt()
        found = super().result(item, allowance_ns, floor, open_idle)
        found["accounting"]["handover"] = self.handover.describe()
        found["accounting"]["passes_changed_midway"] = self.interruptions.num_telling
        return found
