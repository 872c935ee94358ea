"""A candidate: one technique of a block. Prepares buffers, times a call inside the fences, verifies what it left."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from paceline.base.techniques.options import taken_by
from paceline.families.collectives.api.problem import Collective, Cost, Problem
from paceline.families.collectives.core.gate import OwnJudgement, Passed
from paceline.families.collectives.core.oracle import SCALES, Check, Workspace
from paceline.worker.communication.comm import Comm
from paceline.worker.network.namespace import read_counters
from paceline.worker.ranks.session import (
    Block,
    Case,
    CaseError,
    ContractBreachError,
    Session,
)

_monotonic_ns = time.monotonic_ns
_perf_ns = time.perf_counter_ns
LOOPBACK = "lo"
CLOCK_TOLERANCE_NS = 50_000
"""Two clocks read a few instructions apart may differ by an interrupt, never by more than a scheduling delay."""


def make_instance(session: Session, block: Block, case: Case, problem: Problem) -> tuple[Collective, Comm]:
    """Make a technique for a problem, on all ranks or on none.

    Raises:
        CaseError: It does not support the point, broke its contract, or failed, on some rank.
    """
    comm = session.comm()

    def make() -> Collective:
        loaded = session.loaded(case)
        with session.guard.watch():
            instance: Collective = loaded.factory(problem, comm, **case.options)
        return instance

    return session.on_all_ranks(make), comm


class Candidate:
    """A technique that passed its gate, ready to be timed against the others of its block."""

    def __init__(
        self,
        *,
        session: Session,
        block: Block,
        case: Case,
        instance: Collective,
        comm: Comm,
        workspaces: Sequence[Workspace],
        passed: Passed,
        own: OwnJudgement | None,
        input_seed: int,
        flush_bytes: int = 0,
    ) -> None:
        self.session = session
        self.case = case
        self.label = case.label
        self.instance = instance
        self.comm = comm
        self.workspaces = workspaces
        self.operation = workspaces[0].operation
        self.problem = workspaces[0].problem
        self.passed = passed
        self.own = own
        self.rng = random.Random(0)
        self.num_calls = 0
        self.mistake: str | None = None
        self.breached = False
        self.absent: dict[str, str] = {}
        self.checks: list[Check] = []
        self.checksums: list[float] = []
        self.sent: list[tuple[int, ...]] = []
        self.messages: list[tuple[int, ...]] = []
        self.backend_calls: list[int] = []
        self.carried: list[int] = []
        """Bytes that left on the ranks' interface in each timed call, whoever sent them; empty where there is none."""
        self.block = block
        self._input_seed = input_seed
        self._lateness_ns = 0
        # Where the buffers are: writing the host's memory would evict nothing from a device's cache.
        device = self.problem.device
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=device) if flush_bytes else None

    def prepare(self) -> Workspace:
        """Clear what the technique keeps of earlier calls, and put fresh contents into the next set of buffers.

        Draws are unrelated to each other: an error carried over from another draw would be an error of this call.
        """
        workspace = self.workspaces[self.num_calls % len(self.workspaces)]
        scalable = workspace.operation.scalable and self.passed.lossy is None
        scales = SCALES if self.problem.dtype.is_floating_point else SCALES[:2]
        # Scaled by a power of two, a few draws give fresh contents whose results are known exactly.
        scale = self.rng.choice(scales) if scalable else 1.0
        reset = getattr(self.instance, "reset", None)
        if reset is not None:
            with self.session.guard.watch():
                reset()
        # After it: no clock runs while a technique forgets, and it could work on what it found in the buffers.
        workspace.fill(self.rng.randrange(len(workspace.variants)), scale)
        if self._flush is not None:
            # As large as the last-level cache: writing all of it evicts the call's buffers.
            self._flush.add_(1)
        self.num_calls += 1
        return workspace

    def observe(self) -> tuple[float, int]:
        """Run one timed, verified call; return its seconds and its start on rank 0's clock."""
        workspace = self.prepare()
        session = self.session
        session.begin(self.block, self.label, "time")
        # After ``prepare``: only what the timed call moves is counted.
        self.comm.counters.reset()
        before = self._carried_bytes()
        duration, wall, start = self._timed(workspace)
        session.control.barrier()  # a rank that is done would compute on cores that the others still need
        if before is not None:
            self.carried.append((self._carried_bytes() or 0) - before)
        self._verify(workspace, duration, wall)
        return duration * 1e-9, start

    def run_untimed(self) -> Workspace:
        """Run one call that is neither timed nor counted, for the passes after timing."""
        workspace = self.prepare()
        self.comm.begin_call()
        with self.session.guard.watch():
            self.instance.run(*workspace.buffers)
        self.session.device.synchronize()
        self.comm.drop_pending()
        return workspace

    def take_lateness(self) -> float:
        """Return the latest start since the last call, in nanoseconds after the agreed instant."""
        lateness, self._lateness_ns = self._lateness_ns, 0
        return float(lateness)

    @property
    def exact(self) -> bool:
        """True when every call must give the one right result."""
        return self.passed.lossy is None and self.own is None

    def cost(self) -> Cost | None:
        """Return the technique's closed form for this problem, or None where it has none.

        Raises:
            CaseError: The module has no ``cost`` function.
        """
        module = sys.modules[type(self.instance).__module__]
        function = getattr(module, "cost", None)
        if function is None:
            raise CaseError("refused", "the technique's module defines no cost(problem, **options)")
        result = function(self.problem, **taken_by(function, self.case.options))
        assert result is None or isinstance(result, Cost)
        return result

    def correctness(self) -> dict[str, Any]:
        """Return what the gate and the timed calls proved."""
        lossy = self.passed.lossy
        return {
            "passed": True,
            "oracle": "float64 sum over all ranks' inputs"
            if lossy
            else "exact, or float64 with a derived bound",
            "gate_checks": self.passed.num_checks,
            "gate_seeds": list(self.passed.seeds),
            "input_seed": self._input_seed,
            "timed_calls_verified": len(self.checks),
            "max_relative_l2": max((c.relative_l2 for c in self.checks), default=0.0),
            "lossy": None
            if lossy is None
            else {
                "max_relative_l2": lossy.max_relative_l2,
                "min_cosine": lossy.min_cosine,
                "gate_single_call_error": self.passed.single_call_error,
                "gate_mean_error": self.passed.mean_error,
            },
        }

    def _carried_bytes(self) -> int | None:
        """Return what left on this rank's own interface so far, or on the loopback that all ranks share."""
        session = self.session
        shared = session.interface_shared and session.interface != LOOPBACK
        if session.interface is None or shared or session.device.torch_type != "cpu":
            return None
        return read_counters(session.interface).tx_bytes

    def _timed(self, workspace: Workspace) -> tuple[int, int, int]:
        session, buffers, run = self.session, workspace.buffers, self.instance.run
        clock, synchronize = session.device.clock_ns, session.device.synchronize
        try:
            with session.guard.watch():
                synchronize()
                # Right before the clock starts: what a rank waits for others to arrive is no time of the call.
                late = session.control.start_together(session.carrier)
                self.comm.begin_call()
                # A second clock around the first: a device clock that was tampered with disagrees with it.
                wall_start = _monotonic_ns()
                start = clock()
                run(*buffers)
                synchronize()
                stop = clock()
                wall_stop = _monotonic_ns()
        except ContractBreachError as error:
            self._note(str(error), breached=True)
            # A placeholder that is never reported: this rank still has to meet the others at the barrier.
            return 1, 1, _monotonic_ns()
        self._lateness_ns = max(self._lateness_ns, late)
        return stop - start, wall_stop - wall_start, wall_start + session.control.clock_offset_ns

    def _verify(self, workspace: Workspace, duration_ns: int, wall_ns: int) -> None:
        pending = self.comm.num_pending
        if pending:
            self.comm.drop_pending()
            self._note(f"{pending} transfers were still in flight when the call returned", breached=True)
        if duration_ns <= 0 or duration_ns > wall_ns + CLOCK_TOLERANCE_NS:
            self._note(f"clocks disagree: {duration_ns} ns timed, {wall_ns} ns passed", breached=True)
        self.sent.append(tuple(self.comm.counters.sent_bytes))
        self.messages.append(tuple(self.comm.counters.sent_messages))
        self.backend_calls.append(self.comm.counters.backend_calls)
        own = self.own
        check = own.check(self.session, workspace) if own else workspace.check(self.passed.lossy)
        self.checks.append(check)
        if not check.passed:
            self._note(check.reason or "wrong result")
        # Exact techniques are held to the reference alone; ranks of lossy ones must also agree with each other.
        if self.passed.lossy is not None:
            self.checksums.append(float(workspace.buffers[-1].double().sum()))

    def _note(self, reason: str, *, breached: bool = False) -> None:
        if self.mistake is None:
            self.mistake = reason
            self.breached = breached


class MutedCandidate:
    """The same technique with a communicator that moves nothing: its computation alone."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self.label = candidate.label

    def observe(self) -> tuple[float, int]:
        """Run one timed call without communication; its outputs are not looked at."""
        candidate = self._candidate
        workspace = candidate.workspaces[0]
        # Nothing arrives when communication is muted, so the outputs are wrong by design and never judged.
        workspace.fill(0)
        session = candidate.session
        with candidate.comm.muted(), session.guard.watch():
            session.device.synchronize()
            session.control.start_together(session.carrier)
            candidate.comm.begin_call()
            start = _perf_ns()
            candidate.instance.run(*workspace.buffers)
            session.device.synchronize()
            duration = _perf_ns() - start
        candidate.comm.drop_pending()
        return duration * 1e-9, _monotonic_ns() + session.control.clock_offset_ns
