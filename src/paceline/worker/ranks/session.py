"""What one rank of a launch shares with the family that measures: its group, device, events and fences."""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.base.root_cause import traceback_of
from paceline.base.techniques.technique import Technique, UnsupportedError
from paceline.worker.case_error import CaseError, RuleBreachError
from paceline.worker.communication.control import Control
from paceline.worker.communication.fault import Fault
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.events import EventLog
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine.device import Device
from paceline.worker.sandbox.bubblewrap import UNISOLATED

if TYPE_CHECKING:  # they import torch
    from paceline.worker.communication.comm import Comm
    from paceline.worker.communication.transport import TorchTransport, Transport

Made = TypeVar("Made")


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


@dataclass(frozen=True, slots=True)
class Communication:
    """How techniques' communicators are made; bound before any technique is loaded."""

    make: type[Comm]
    transport: Transport


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
    waiting: float | None = None
    """Share of the timed passes of the block under way in which they had no core, where its family has measured it."""
    proofs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What this rank found in proofs of earlier launches of the run, by their keys; all ranks have the same keys."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys to sources of models and data by the names of their variables; they are in no environment any more."""
    skip_after_hang: bool = False
    """Whether a technique that hung in one block is left out of those that follow; the launcher tells it."""
    hung: set[str] = field(default_factory=set)
    """Labels that hung, and were ended without the group."""
    communication: Communication | None = None
    """What techniques' communicators are; None in a rank that needs no PyTorch."""
    new_transport: Callable[[], TorchTransport] | None = None
    """Makes another group for techniques, called by all ranks; None where ranks are threads that share memory."""

    @property
    def transport(self) -> Transport:
        """What techniques' communicators are built on."""
        assert self.communication is not None, "an operation that needs no PyTorch has no communicator"
        return self.communication.transport

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
        assert self.communication is not None
        kept, fresh = self.communication, self.new_transport()
        self.communication = replace(kept, transport=fresh)
        try:
            yield
        finally:
            self.communication = kept
        fresh.close()  # not of a rank that raised: it ends, and others may still wait for it

    def comm(self, *, faults: Sequence[Fault] = (), traced: bool = True) -> Comm:
        """Return a fresh communicator for one technique."""
        assert self.communication is not None, "an operation that needs no PyTorch has no communicator"
        return self.communication.make(
            self.communication.transport,
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
    """Return what a proof was made with: another PyTorch or host asks for one of its own."""
    torch = sys.modules.get("torch")
    return f"{getattr(torch, '__version__', 'no torch')}/{platform.node()}"


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
