"""One technique at a point: calls in its timing process, verification of every timed output, accounts of its clock.

The technique's clock alone is believed of nobody: what passed here while a pass ran must be accounted for, and passes
on inputs that share nothing with earlier ones must not be slower. Who is in doubt is measured once more before anything
is refused: in turn with a kernel that does nothing, or on new and known inputs in random order.

One class, because every doubt is settled by more passes of the same process, which count like all others.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.families.kernels.core.accounting import (
    CLOCK_SHARE,
    LEAST_NEW_PASSES,
    MAX_SLOWDOWN,
    MOST_SLOWDOWN,
    controlled_allowance_ns,
    late,
    slowdown_in_turn,
    slowdown_on_new_inputs,
    unaccounted_ns,
)
from paceline.families.kernels.core.ceilings import Floor
from paceline.families.kernels.core.operators import Draw, Variation
from paceline.families.kernels.core.point import Places, Point
from paceline.families.kernels.core.timing_process.client import TimingProcess
from paceline.families.kernels.core.timing_process.passes import BLOCKING_NS, WAKE_NS
from paceline.worker.machine.memory import peak_bytes, reset_peak
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.timing.interleaved import Series, median

_perf_ns = time.perf_counter_ns

MEMORY_CALLS = 4
"""Of which the least counts: where blocks lie in the heap can make a call need more, and never less."""
CLOCK_REPEATS, CLOCK_PASSES = 4, 8
"""Passes that are made again when clocks disagree."""
HOST_PASSES = 5
HOST_ALLOWANCE_NS = 200_000
"""By which passes are held against the host's clock: launching on an idle device and noticing its end take 0.1 ms."""
IN_TURN_PASSES = 16
"""Passes on new inputs, and as many on known ones, by which a doubt is settled."""


class Candidate:
    """A technique that passed its gate, ready to be timed against the others of its block."""

    def __init__(
        self,
        *,
        session: Session,
        block: Block,
        case: Case,
        process: TimingProcess,
        point: Point,
        draws: Sequence[Draw],
        rng: random.Random,
        num_checks: int,
    ) -> None:
        self.session = session
        self.block = block
        self.case = case
        self.label = case.label
        self.process = process
        self.point = point
        self.draws = draws
        self.rng = rng
        self.num_checks = num_checks
        self.flush_bytes = 0
        self.hot = False
        self.touch_ns = 0
        """Longest time that reading a pass's tensors may take."""
        self.num_sets = 1
        self.places: Places | None = None
        self.failure: CaseError | None = None
        self.num_calls = 0
        self.num_repeats = 0
        self.worst_error = 0.0
        self.unaccounted_ns: list[int] = []
        self.pass_ns: list[int] = []
        self.costs_s: list[float] = []
        """Seconds that each observation took with preparation and verification."""
        self.busy_ns: list[int] = []
        self.new_ns: list[tuple[int, int]] = []
        self._next_new = 3
        self._seen: set[tuple[int, int]] = set()
        self.trial_s = self._trial()

    def _trial(self) -> float:
        """Return the time of one call, roughly."""
        places = self.point.make(self.process, self.draws[:1], num_sets=1)
        change, _ = self.point.change(0, 0)
        times = []
        for _ in range(3):
            self.process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=self.point.timeout_s)
            reply = self.process.run(1, timed=False, timeout_s=self.point.timeout_s)
            times.append(reply["elapsed_ns"] * 1e-9)
        places.region.close()
        # The first call may compile or allocate.
        return float(min(times))

    def allocate(self, num_sets: int) -> None:
        """Make the instance that is timed, with all draws and working sets.

        Raises:
            CaseError: The technique failed.
        """
        self.session.begin(self.block, self.label, "inputs")
        self.num_sets = num_sets
        self.places = self.point.make(self.process, self.draws, num_sets)

    def observe(self) -> tuple[float, int]:
        """Time one pass and verify all of its outputs; return the seconds of one call and the pass's start."""
        self.session.begin(self.block, self.label, "time")
        # It keeps its turn, so that the others' rounds stay what they are; ``result`` tells the failure.
        if self.failure is not None:
            return 1e-9, 0
        start = _perf_ns()
        try:
            observed = self._observe()
            self.costs_s.append((_perf_ns() - start) * 1e-9)
            if len(self.pass_ns) >= self._next_new:
                # Outside the pass that was just observed, and at moments that the technique cannot foresee.
                self._try_new_inputs()
            return observed
        except CaseError as error:
            self.failure = error
            return 1e-9, 0

    def _observe(self, *, disputed: bool = False) -> tuple[float, int]:
        assert self.places is not None
        limit = self.point.timeout_s
        chosen = [self._next_variation() for _ in range(self.num_sets)]
        changes = [self.point.change(number, index) for number, index in chosen]
        before, _ = self.point.change(*self._next_variation())
        made = [*(c for c, _ in changes), before]
        if disputed:
            # New inputs are drawn, too, and not used: only what the inputs are differs from a pass on new ones.
            made = [{**change, "new": False} for change in made]
        elapsed, busy, unaccounted = self._timed_pass(self.process, made)
        self.pass_ns.append(elapsed)
        self.busy_ns.append(busy)
        self.unaccounted_ns.append(unaccounted)
        if elapsed <= 0:
            raise CaseError("refused", f"a pass took {elapsed} ns")
        # Comparing inputs costs as much as writing them, so one set is compared, and any may be the one.
        compared = self.rng.randrange(self.num_sets)
        fetched = self.process.ask(
            {"do": "fetch", "places": self.places.outputs, "compare": [compared]}, timeout_s=limit
        )
        if fetched["changed_input"] is not None:
            name = self.point.specs[0][fetched["changed_input"]].name
            raise CaseError("incorrect", f"timed call: the input '{name}' was changed")
        for place, ((number, _), (_, changed)) in enumerate(zip(chosen, changes, strict=True)):
            check = self.point.judged(self.places, place, self.draws[number], changed)
            if not check.passed:
                raise CaseError("incorrect", f"timed call: {check.reason}")
            self.worst_error = max(self.worst_error, check.relative_error)
        self.num_calls += self.num_sets
        return elapsed * 1e-9 / self.num_sets, 0

    def _timed_pass(
        self, process: TimingProcess, changes: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int, int]:
        """Run one pass; return its nanoseconds by its own clock, those with a core, and what passed here beyond."""
        reply = self._pass(process, changes)
        elapsed = int(reply["elapsed_ns"])
        # Bounded by what waking up can take: whoever could claim more would hide work there.
        awake = min(int(reply["wake_ns"]), WAKE_NS + 2 * elapsed // self.num_sets + self.touch_ns)
        passed = int(reply["wall_ns"])
        if self.point.device == "cpu" and reply["ran_ns"] > 0:
            # The kernel's count leaves out waiting for a core, which is nobody's fault; work in this thread it counts.
            passed = min(passed, int(reply["ran_ns"]))
        # By device events, before the pass: a device that waits computes nothing on this stream, and other streams are
        # looked at by ``_held_against_the_host``.
        blocked = min(int(reply.get("blocked_ns", 0)), BLOCKING_NS[1])
        return elapsed, int(reply["busy_ns"]), passed - elapsed - awake - blocked

    def _pass(
        self, process: TimingProcess, changes: Sequence[Mapping[str, Any]], clock: str = "own"
    ) -> dict[str, Any]:
        """Prepare inputs and caches, and run one pass by the device's own clock or by the ``host``'s."""
        limit = self.point.timeout_s
        process.ask({"do": "prepare", "changes": list(changes)}, timeout_s=limit)
        flushed = bool(self.flush_bytes)
        if flushed:
            process.ask({"do": "flush", "bytes": self.flush_bytes}, timeout_s=limit)
        return process.run(
            self.num_sets, timed=True, hot=self.hot, flushed=flushed, clock=clock, timeout_s=limit
        )

    def _held_against_the_host(self) -> float:
        """Return how many nanoseconds a pass takes longer by the host's clock than device events say; 0 on a CPU.

        Events see one stream. Work that a call sends to another one would run while the timed stream waits for its
        calls, before the first event. From an idle device until it is idle again nothing is left out; what the host
        needs to queue the calls up is no work of the device.

        Raises:
            CaseError: So much longer that work was done outside the events.
        """
        if self.point.device == "cpu":
            return 0.0
        usual_ns = median([float(ns) for ns in self.pass_ns])
        missing = float("inf")
        for _ in range(HOST_PASSES):
            reply = self._pass(self.process, [self._varied() for _ in range(self.num_sets + 1)], clock="host")
            # The least: whoever hides work hides it from every pass, and others only make a pass longer.
            missing = min(missing, reply["elapsed_ns"] - max(float(reply["queued_ns"]), usual_ns))
        allowed = HOST_ALLOWANCE_NS + CLOCK_SHARE * usual_ns
        if missing <= allowed:
            return missing
        raise CaseError(
            "refused",
            f"passes of {usual_ns * 1e-6:.3g} ms between device events keep the device busy {missing * 1e-6:.3g} ms "
            f"longer by the host's clock; {allowed * 1e-6:.3g} ms are allowed",
        )

    def _try_new_inputs(self) -> None:
        """Time a pass on inputs that share nothing with earlier ones, and choose when to do so again.

        Nobody knows their results. A technique that remembers draws is slower here, and cannot tell beforehand when.
        """
        changes = [{**self._varied(), "new": True} for _ in range(self.num_sets + 1)]
        _, busy, _ = self._timed_pass(self.process, changes)
        count = len(self.pass_ns)
        self.new_ns.append((count, busy))
        self._next_new = count + 1 + self.rng.randrange(2 + count // 2)

    def _varied(self) -> dict[str, Any]:
        """Return what makes a call on some draw, which does not count as the technique's."""
        number = self.rng.randrange(len(self.draws))
        return dict(self.point.change(number, self.rng.randrange(self.point.num_variations))[0])

    def _next_variation(self) -> tuple[int, int]:
        """Return a draw and a variation that no call of this technique had before, while there are any."""
        total = len(self.draws) * self.point.num_variations
        if len(self._seen) >= total:
            self.num_repeats += 1
            return self.rng.randrange(len(self.draws)), self.rng.randrange(self.point.num_variations)
        while True:
            found = (self.rng.randrange(len(self.draws)), self.rng.randrange(self.point.num_variations))
            # A call never meets inputs that it has seen, so that results remembered by content are of no use.
            if found not in self._seen:
                self._seen.add(found)
                return found

    def result(
        self, item: Series, allowance_ns: float, floor: Floor, open_idle: Callable[[], TimingProcess]
    ) -> dict[str, Any]:
        """Judge the series and measure memory.

        Args:
            item: The series of this technique.
            allowance_ns: How much longer than its passes the judge may have waited.
            floor: Gives the seconds that no honest call can undercut.
            open_idle: Starts a kernel that does nothing, when clocks disagree.

        Raises:
            CaseError: The technique failed, or its clock does not account for the time that passed.
        """
        if self.failure is not None:
            raise self.failure
        missing, allowed = self._accounted(allowance_ns, open_idle)
        slowdown = self._slowdown()
        outside_ns = self._held_against_the_host()
        least = min(item.samples)
        if least < (floor_s := floor(least)):
            reason = f"a sample of {least:.3g} s is below the {floor_s:.3g} s that this device allows"
            raise CaseError("invalid", reason)
        assert self.places is not None
        metrics: dict[str, Any] = {"relative_error": {"samples": [self.worst_error]}}
        absent: dict[str, str] = {}
        if self.places.weight_bytes is not None:
            metrics["weight_bytes"] = {"samples": [float(self.places.weight_bytes)]}
        memory = self._memory()
        if memory is None:
            absent["extra_memory"] = "the kernel does not show the peak resident set"
        else:
            metrics["extra_memory"] = {"samples": [float(memory)]}
        return {
            "status": "ok",
            "metrics": metrics,
            "absent": absent,
            "correctness": {
                "passed": True,
                "oracle": self.point.operator.oracle,
                "gate_checks": self.num_checks,
                "timed_calls_verified": self.num_calls,
                "inputs_seen_twice": self.num_repeats,
                "max_relative_l2": self.worst_error,
            },
            "accounting": {
                "requested": self.num_calls,
                "ok": self.num_calls,
                "failed": 0,
                "dropped": 0,
                "unaccounted_ns": missing,
                "allowed_ns": allowed,
                "slowdown_on_new_inputs": slowdown,
                **({"outside_events_ns": outside_ns} if self.point.device != "cpu" else {}),
            },
        }

    def _accounted(self, allowance_ns: float, open_idle: Callable[[], TimingProcess]) -> tuple[float, float]:
        """Return the time that the technique's clock does not account for, and what is allowed.

        A busy machine delays messages; before anybody is blamed for that, passes are repeated in turn with those of
        a process that does nothing.

        Raises:
            CaseError: It is more than allowed, again and again.
        """
        share_ns = CLOCK_SHARE * median([float(ns) for ns in self.pass_ns])
        missing = unaccounted_ns(self.pass_ns, self.unaccounted_ns)
        # The usual case costs nothing: only a dispute starts a control process.
        if missing <= allowance_ns + share_ns:
            return missing, allowance_ns + share_ns
        controlled: list[tuple[int, int]] = []
        process, places = open_idle(), None
        try:
            places = self.point.make(process, self.draws[:1], self.num_sets)
            change, _ = self.point.change(0, 0)
            for _ in range(CLOCK_REPEATS):
                for _ in range(CLOCK_PASSES):
                    self._observe()
                    elapsed, _, unaccounted = self._timed_pass(process, [change] * (self.num_sets + 1))
                    controlled.append((elapsed, unaccounted))
                share_ns = CLOCK_SHARE * median([float(ns) for ns in self.pass_ns])
                allowed = controlled_allowance_ns(allowance_ns, controlled) + share_ns
                missing = unaccounted_ns(self.pass_ns, self.unaccounted_ns)
                if missing <= allowed:
                    return missing, allowed
        finally:
            process.end()
            if places is not None:
                places.region.close()
        raise CaseError(
            "refused",
            f"clocks disagree: passes of {min(self.pass_ns) * 1e-6:.3g} ms and more on its own clock "
            f"kept its judge waiting {missing * 1e-6:.3g} ms longer; an idle cell in turn with it is allowed "
            f"{allowed * 1e-6:.3g} ms",
        )

    def _slowdown(self) -> float:
        """Return how much slower passes on new inputs were.

        Raises:
            CaseError: So much that the technique must remember results.
        """
        # Again with more passes before anybody is refused: a quartile of few is easily disturbed.
        for repeat in range(1, CLOCK_REPEATS + 1):
            while len(late(self.new_ns, len(self.pass_ns))) < repeat * LEAST_NEW_PASSES:
                self._observe()
                self._try_new_inputs()
            slowdown = slowdown_on_new_inputs(self.busy_ns, self.new_ns)
            if slowdown <= MAX_SLOWDOWN:
                return slowdown
        slowdown = self._slowdown_in_turn()
        if slowdown <= MAX_SLOWDOWN:
            return slowdown
        raise CaseError(
            "refused",
            f"{slowdown:.3g} times slower on inputs that share nothing with earlier ones, in random order with others; "
            f"{MAX_SLOWDOWN} is allowed",
        )

    def _slowdown_in_turn(self) -> float:
        """Make passes on new and on known inputs in random order; return how much slower those on new ones are.

        Raises:
            CaseError: The technique failed.
        """
        usual_ns = median([float(ns) for ns in self.busy_ns])
        before, before_new = len(self.busy_ns), len(self.new_ns)
        slowdown = 0.0
        for _ in range(CLOCK_REPEATS):
            # In random order, so that nobody knows which comes next.
            for new in self.rng.sample([True, False] * IN_TURN_PASSES, 2 * IN_TURN_PASSES):
                self._try_new_inputs() if new else self._observe(disputed=True)
            new_ns = [ns for _, ns in self.new_ns[before_new:]]
            slowdown = slowdown_in_turn(usual_ns, self.busy_ns[before:], new_ns)
            # Again before anybody is refused, except for what no machine does.
            if slowdown <= MAX_SLOWDOWN or slowdown > MOST_SLOWDOWN:
                break
        return slowdown

    def _memory(self) -> int | None:
        """Return what one call needs at the least beside inputs and outputs, and what the instance keeps.

        Raises:
            CaseError: A call was wrong: nobody gains by computing something else while memory is measured.
        """
        found = [self._memory_of_a_call() for _ in range(MEMORY_CALLS)]
        known = [needed for needed in found if needed is not None]
        return min(known) if known else None

    def _memory_of_a_call(self) -> int | None:
        limit = self.point.timeout_s
        number, index = self._next_variation()
        change, changed = self.point.change(number, index)
        self.process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=limit)
        # After ``prepare``, so that the sets themselves are resident and only the call's need grows the peak.
        kept = int(self.process.ask({"do": "trim"}, timeout_s=limit)["kept_bytes"])
        if self.point.device == "cpu":
            if not reset_peak(self.process.pid):
                return None
            before = peak_bytes(self.process.pid)
            self.process.run(1, timed=False, timeout_s=limit)
            after = peak_bytes(self.process.pid)
            needed = None if before is None or after is None else max(after - before, 0)
        else:
            self.process.run(1, timed=False, timeout_s=limit)
            needed = int(self.process.ask({"do": "peak"}, timeout_s=limit)["peak_bytes"])
        self._judge_first(number, changed)
        return None if needed is None else needed + kept  # the kernel counts in batches

    def _judge_first(self, number: int, changed: Variation) -> None:
        """Judge the outputs of the first working set.

        Raises:
            CaseError: They are wrong.
        """
        assert self.places is not None
        self.process.ask(
            {"do": "fetch", "places": self.places.outputs[:1], "compare": []}, timeout_s=self.point.timeout_s
        )
        check = self.point.judged(self.places, 0, self.draws[number], changed)
        if not check.passed:
            raise CaseError("incorrect", f"while memory is measured: {check.reason}")
