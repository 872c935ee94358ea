"""What one rank of a launch shares with the family that measures: its group, device, events and fences."""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from paceline.base.root_cause import traceback_of
from paceline.base.techniques.technique import Technique, UnsupportedError
from paceline.worker.case_error import CaseError
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.fault import Fault
from paceline.worker.communication.rules import RuleBreachError
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.communication.transport import TorchTransport, Transport
from paceline.worker.events import EventLog
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine.device import Device
from paceline.worker.sandbox.bubblewrap import UNISOLATED

_monotonic_ns = time.monotonic_ns
_sched_yield = os.sched_yield
Made = TypeVar("Made")

MIN_START_MARGIN_NS = 60_000
MAX_START_MARGIN_NS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One technique inside a block, as the plan describes it."""

    case_id: str
    label: str
    technique: str
    module: str
    sha256: str
    role: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """All techniques of one point."""

    block: str
    suite: str
    family: str
    params: Mapping[str, Any]
    ranks: int
    link: Mapping[str, Any]
    protocol: Mapping[str, Any]
    baseline: str
    cases: tuple[Case, ...]


def block_from_plan(data: Mapping[str, Any], labels: Sequence[str] | None = None) -> Block:
    """Read a block of the plan, keeping only the techniques in ``labels`` when given."""
    cases = tuple(Case(**case) for case in data["cases"] if labels is None or case["label"] in labels)
    rest = {k: data[k] for k in Block.__dataclass_fields__ if k != "cases"}
    return Block(cases=cases, **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An imported technique, or the reason why it may not run."""

    info: Technique | None
    factory: Any
    refusal: CaseError | None = None


class Control:
    """The harness's own small messages between ranks, on a group that techniques cannot reach."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.rank = transport.rank
        self.world_size = transport.world_size
        self._margin_ns = 150_000
        self.clock_offset_ns = 0
        """Add to this rank's monotonic clock to get rank 0's."""
        self.clock_error_ns = 0
        """Bound on the offset's error."""

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[list[float]]]:
        """Exchange equally shaped rows of floats; the result holds every rank's rows, in rank order."""
        flat = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
        if self.world_size == 1:
            return [[list(row) for row in rows]]
        if flat.numel() == 0:
            return [[list(row) for row in rows] for _ in range(self.world_size)]
        output = torch.empty(self.world_size * flat.numel(), dtype=torch.float64)
        self._transport.all_gather(output, flat)
        everyone: list[list[list[float]]] = []
        for values in output.view(self.world_size, -1).tolist():
            iterator = iter(values)
            everyone.append([[next(iterator) for _ in row] for row in rows])
        return everyone

    def gather_text(self, text: str) -> list[str]:
        """Exchange strings between ranks."""
        if self.world_size == 1:
            return [text]
        data = text.encode()
        length = max(int(rows[0][0]) for rows in self.gather([[float(len(data))]]))
        padded = torch.zeros(8 + length, dtype=torch.uint8)
        padded[:8] = torch.tensor(list(len(data).to_bytes(8, "little")), dtype=torch.uint8)
        if data:
            padded[8 : 8 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        output = torch.empty(self.world_size * padded.numel(), dtype=torch.uint8)
        self._transport.all_gather(output, padded)
        texts: list[str] = []
        for row in output.view(self.world_size, -1):
            count = int.from_bytes(bytes(row[:8].tolist()), "little")
            texts.append(bytes(row[8 : 8 + count].tolist()).decode())
        return texts

    def agree(self, number: int) -> int:
        """Return rank 0's number on every rank."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.int64)
        self._transport.broadcast(tensor, 0)
        return int(tensor.item())

    def first_problem(self, problem: str | None) -> str | None:
        """Return the problem of the lowest rank that has one, the same on every rank; None when none has."""
        for rank, text in enumerate(self.gather_text(problem or "")):
            if text:
                return text if self.world_size == 1 else f"rank {rank}: {text}"
        return None

    def sum_in_place(self, tensor: torch.Tensor) -> None:
        """Add a tensor of the CPU up over ranks, in place."""
        if self.world_size > 1:
            self._transport.all_reduce(tensor)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            self._transport.barrier()

    def synchronise_clocks(self, *, rounds: int = 32) -> None:
        """Estimate this rank's clock offset to rank 0 from the fastest of several ping-pongs.

        The error is at most half of the least round trip; both are kept. Ranks of one host share a clock, so there the
        offset should come out within that bound of zero.
        """
        if self.world_size == 1:
            return
        stamp = torch.zeros(1, dtype=torch.int64)
        for other in range(1, self.world_size):
            best = None
            for _ in range(rounds):
                if self.rank == 0:
                    begin = _monotonic_ns()
                    self._message(stamp, other, send=True)
                    self._message(stamp, other, send=False)
                    round_trip = _monotonic_ns() - begin
                    middle = begin + round_trip // 2
                    if best is None or round_trip < best[0]:
                        best = (round_trip, middle - int(stamp.item()))
                elif self.rank == other:
                    self._message(stamp, 0, send=False)
                    stamp[0] = _monotonic_ns()
                    self._message(stamp, 0, send=True)
            if self.rank == 0:
                assert best is not None
                result = torch.tensor([best[1], best[0] // 2 + 1], dtype=torch.int64)
                self._message(result, other, send=True)
            elif self.rank == other:
                result = torch.zeros(2, dtype=torch.int64)
                self._message(result, 0, send=False)
                self.clock_offset_ns, self.clock_error_ns = (int(v) for v in result.tolist())

    def start_together(self, carrier: Transport | None = None) -> int:
        """Let all ranks leave at one instant of rank 0's clock; return this rank's lateness in nanoseconds.

        Rank 0 names an instant a little ahead. The distance adapts: it grows when a rank was late, and shrinks slowly;
        it stays short, because ranks that wait by spinning keep their cores from whatever the carrier needs next.

        Args:
            carrier: Sends the instant, so that its threads and sockets are as awake as in a loop of calls; None sends
                it over the control group.
        """
        if self.world_size == 1:
            return 0
        tensor = torch.tensor([_monotonic_ns() + self._margin_ns], dtype=torch.int64)
        (carrier or self._transport).broadcast(tensor, 0)
        target = int(tensor.item()) - self.clock_offset_ns
        crowded = 2 * self.world_size > len(os.sched_getaffinity(0))
        while (now := _monotonic_ns()) < target:
            if crowded:
                _sched_yield()
        return now - target

    def adapt_margin(self, late_ns: float) -> None:
        """Widen the margin after a late start of any rank, narrow it slowly otherwise."""
        grown = self._margin_ns * 1.5 if late_ns > 20_000 else self._margin_ns * 0.98
        self._margin_ns = int(min(max(grown, MIN_START_MARGIN_NS), MAX_START_MARGIN_NS))

    def _message(self, tensor: torch.Tensor, peer: int, *, send: bool) -> None:
        waits = self._transport.post([(tensor, peer)] if send else [], [] if send else [(tensor, peer)])
        for work in waits:
            work.wait()


@dataclass(slots=True, kw_only=True)
class Session:
    """One rank of one launch."""

    rank: int
    world_size: int
    launch: int
    seed: int
    """From the plan; equal on all ranks."""
    fixed_seed: bool
    """True when the run repeats an earlier one: no entropy is mixed into the seeds of inputs."""
    device: Device
    control: Control
    transport: Transport
    """What techniques' communicators are built on."""
    events: EventLog
    trace: TraceWriter
    guard: Guard
    techniques: Mapping[str, Loaded]
    """Imported techniques by module and name (``module:name``)."""
    interface: str | None = None
    """Network interface whose kernel counters hold this rank's traffic; None when there is no such interface."""
    interface_shared: bool = True
    """True when the interface carries all ranks' traffic (loopback)."""
    control_interface: str | None = None
    """Interface of the harness's own messages; in a namespace its counters show what went around the communicator."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What families keep for the whole launch, such as calibrated ceilings."""
    proofs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What this rank found in proofs of earlier launches of the run, by their keys; all ranks have the same keys."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys to sources of models and data by the names of their variables; they are in no environment any more."""
    skip_after_hang: bool = False
    """Whether a technique that hung in one block is left out of those that follow; the launcher tells it."""
    hung: set[str] = field(default_factory=set)
    """Labels that hung, and were ended without the group."""
    new_transport: Callable[[], TorchTransport] | None = None
    """Makes another group for techniques, called by all ranks; None where ranks are threads that share memory."""

    @property
    def carrier(self) -> Transport | None:
        """The techniques' carrier where it moves tensors of the CPU, else None."""
        return self.transport if self.device.torch_type == "cpu" else None

    @contextmanager
    def fresh_transport(self) -> Iterator[None]:
        """Build communicators on a group of their own for a while, where one can be made; all ranks enter together."""
        if self.new_transport is None:
            yield
            return
        kept, fresh = self.transport, self.new_transport()
        self.transport = fresh
        try:
            yield
        finally:
            self.transport = kept
        fresh.close()  # not of a rank that raised: it ends, and others may still wait for it

    def comm(self, *, faults: Sequence[Fault] = (), traced: bool = True) -> Comm:
        """Return a fresh communicator for one technique."""
        return Comm(
            self.transport,
            trace=self.trace if traced else None,
            faults=faults,
            marks=self.device.marks(),
        )

    def loaded(self, case: Case) -> Loaded:
        """Return the imported technique of a case.

        Raises:
            CaseError: The technique was refused or failed to import.
        """
        found = self.techniques[f"{case.module}:{case.technique}"]
        if found.refusal is not None:
            raise found.refusal
        return found

    def on_all_ranks(self, make: Callable[[], Made]) -> Made:
        """Make something on all ranks or on none; what goes wrong on one rank is told on all.

        Raises:
            CaseError: It is not supported, broke its contract, or failed, on some rank.
        """
        made: list[Made] = []
        trouble = detail = ""
        try:
            made.append(make())
        except UnsupportedError as error:
            trouble = f"unsupported|{error}"
        except ContractBreachError as error:
            trouble = f"refused|{error}"
        except RuleBreachError:
            raise  # what ranks have started will never end, so that none may go on with the group
        except CaseError as error:
            trouble, detail = f"{error.status}|{error.reason}", error.detail or ""
        except Exception as error:
            trouble, detail = f"crashed|{type(error).__name__}: {error}", traceback_of(error)
        for text in self.control.gather_text(f"{trouble}\0{detail}" if trouble else ""):
            if text:
                said, _, detail = text.partition("\0")
                status, _, reason = said.partition("|")
                raise CaseError(status, reason, detail or None)
        return made[0]

    def without_hung(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a block of the plan without the techniques that hung on some rank, if such are left out."""
        if not self.skip_after_hang:
            return data
        told = self.control.gather_text("\0".join(sorted(self.hung)))
        self.hung.update(label for text in told for label in text.split("\0") if label)
        return {**data, "cases": [c for c in data["cases"] if c["label"] not in self.hung]}

    def earlier_proof(self, key: str) -> Mapping[str, Any] | None:
        """Return what an earlier launch of the run found when it proved the same thing here; None: prove it now.

        Args:
            key: Names what is proved: the technique with its options, and the point as far as it matters. Code cannot
                change within a run; another host or PyTorch asks for a proof of its own.
        """
        return self.proofs.get(f"{_environment()}/{key}")

    def tell_proof(self, key: str, facts: Mapping[str, Any]) -> None:
        """Tell later launches what a proof has found: plain data, of this rank."""
        self.events.emit("proved", key=f"{_environment()}/{key}", facts=facts)

    def draw_seed(self, *parts: object) -> int:
        """Return a seed that techniques could not foresee, equal on all ranks and recorded by the caller.

        It is drawn after all techniques were imported. With a fixed seed it follows from the plan alone.
        """
        entropy = 0 if self.fixed_seed else int.from_bytes(os.urandom(6), "little")
        agreed = self.control.agree(entropy)
        return random.Random(f"{self.seed}/{self.launch}/{parts}/{agreed}").getrandbits(48)

    def begin(self, block: Block, label: str, stage: str) -> None:
        """Announce in the trace what the rank is about to do."""
        self.trace.context(f"{block.block}|{label}|{stage}")

    def emit_result(self, block: Block, case: Case, result: Mapping[str, Any]) -> None:
        """Report what a case gave; only rank 0 does.

        A number of a user's file says what isolated it: nothing, unless its family says otherwise.
        """
        if result["status"] == "ok" and case.module.startswith("user:"):
            result = {"isolation": UNISOLATED, **result}
        if self.rank == 0:
            self.events.emit("result", block=block.block, case_id=case.case_id, label=case.label, **result)

    def emit_failure(self, block: Block, case: Case, error: CaseError) -> None:
        """Report why a case gave nothing."""
        if error.status == "timeout":
            self.hung.add(case.label)
        self.emit_result(
            block,
            case,
            {"status": error.status, "reason": error.reason, "detail": error.detail, "metrics": {}},
        )


def _environment() -> str:
    return f"{torch.__version__}/{platform.node()}"


__all__ = [
    "Block",
    "Case",
    "CaseError",
    "ContractBreachError",
    "Control",
    "Loaded",
    "Session",
    "UnsupportedError",
    "block_from_plan",
]
