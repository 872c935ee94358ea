"""A progress bar with the remaining time, and plain lines where there is no terminal."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paceline.base.terminal import harmless, unguarded
from paceline.base.units import format_duration
from paceline.records.earlier_runs import RunTimes, plan_pace
from paceline.spec.plans.duration import launches_of
from paceline.spec.plans.plan import Plan

PLAIN_EVERY_S = 15.0
REASON = re.compile(r"\w{1,60}")
"""What a scheduler's reason looks like."""
MOST_CALLS = 1e12
"""Numbers of calls from here on are nobody's."""
ROUNDING = 1e-9
"""Share of the time that went by within which nothing is left."""
PRIOR = 0.05
"""How much the estimate weighs against what was measured: as this share of the run."""


class TimeLeft:
    """The seconds that a run still needs: first the plan's estimate, then more and more the pace of what has ended.

    Args:
        likely_s: The plan's estimate; None where there is none.
        result_s: What one result of each block takes, at least in proportion.
        num_results: How many results each block gives at once, and in how many launches.
    """

    def __init__(
        self,
        likely_s: float | None,
        result_s: Mapping[str, float],
        num_results: Mapping[str, tuple[int, int]],
    ) -> None:
        whole = sum(result_s[b] * cases * launches for b, (cases, launches) in num_results.items())
        scale = likely_s / whole if likely_s is not None and whole > 0 else 1.0
        self._known = likely_s is not None
        self._result_s = {block: seconds * scale for block, seconds in result_s.items()}
        self._total_s = whole * scale
        self._longest_s = max((self._result_s[b] * n for b, (n, _) in num_results.items()), default=0.0)
        self._ended_s = self._measured_s = self._at_s = 0.0

    def ended(self, block: str, elapsed_s: float, *, before: bool = False) -> None:
        """Note a result that came after so many seconds; ``before``: an earlier attempt at the run gave it."""
        seconds = self._result_s.get(block, 0.0)
        self._ended_s += seconds
        if not before:
            self._measured_s += seconds
            self._at_s = elapsed_s

    def spared(self, block: str, num_results: int) -> None:
        """Note how many results fewer come than was likely; negative: more."""
        self._total_s -= self._result_s.get(block, 0.0) * num_results

    def seconds(self, elapsed_s: float) -> float | None:
        """Return what is left; 0 if the run takes longer than anything says, None while nothing can be said."""
        if not self._known and not self._measured_s:
            return None
        prior = PRIOR * self._total_s if self._known else 0.0
        pace = (self._at_s + prior) / (self._measured_s + prior) if self._measured_s + prior else 0.0
        if (due := self._measured_s + self._longest_s) > 0:  # a block that should have ended says so, too
            pace = max(pace, elapsed_s / due)
        left = (self._total_s - self._ended_s) * pace - (elapsed_s - self._at_s)
        return left if left > ROUNDING * elapsed_s else 0.0

    def text(self, elapsed_s: float) -> str:
        """Say what is left."""
        seconds = self.seconds(elapsed_s)
        if seconds is None:
            return "nobody knows how much"
        if not seconds:
            return "longer than expected, it is unknown how much"
        return f"about {format_duration(seconds)}" if seconds >= 1 else "less than a second"


class RunProgress:
    """Shows how far a run is; ``quiet`` shows nothing.

    Args:
        plan: What runs.
        earlier: Earlier runs, whose times the remaining time rests on at first.
    """

    def __init__(self, plan: Plan, earlier: Sequence[RunTimes] = (), *, quiet: bool = False) -> None:
        estimate, result_s = plan_pace(plan, earlier)
        self._left = TimeLeft(
            estimate["likely_s"],
            result_s,
            {b["block"]: (len(b["cases"]), launches_of(b["protocol"]).likely) for b in plan.blocks},
        )
        self._blocks = {b["block"]: b for b in plan.blocks}
        self._total = plan.num_results
        self._began = time.time()
        self._quiet = quiet
        self._skips = bool(plan.data.get("skip_after_hang"))
        self._done = 0
        self._failed = 0
        self._under_way = self._waiting = ""
        self._labels = frozenset(c["label"] for b in plan.blocks for c in b["cases"])
        self._started = time.monotonic()
        self._last_line = self._started
        self._console = Console(file=unguarded(sys.stderr))
        self._bar: Progress | None = None
        if not quiet and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left: {task.fields[left]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("measuring", total=self._total, left=self._left.text(0.0))

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar from the terminal while something else is printed."""
        if self._bar is not None:
            self._bar.stop()
        try:
            yield
        finally:
            if self._bar is not None:
                self._bar.start()

    def event(self, event: Mapping[str, Any]) -> None:
        """Take note of an event and redraw."""
        kind = event.get("event")
        if kind in ("result", "case_failed"):
            self._done += 1
            before = (event.get("time_s") or self._began) < self._began
            self._left.ended(str(event.get("block")), time.monotonic() - self._started, before=before)
            if event.get("status") not in ("ok", "skipped", "unsupported"):
                self._failed += 1
            if event.get("status") == "timeout" and not self._quiet:
                self._console.print(self._hang_text(event), markup=False, highlight=False, soft_wrap=True)
        if kind == "progress":
            self._under_way = calls_text(event, self._labels) or self._under_way
        if kind == "waiting":
            self._waiting = waiting_text(event.get("reasons"))
            self._last_line = -math.inf  # so that it is told at once
        if kind == "block_stopped" and event.get("block") in self._blocks:
            block = self._blocks[str(event["block"])]
            cases, made = len(block["cases"]), int(event["launches"])
            self._total -= cases * (block["protocol"]["launches"] - made)
            self._left.spared(block["block"], cases * (launches_of(block["protocol"]).likely - made))
        if self._bar is not None:
            words = "measuring" if not self._failed else f"measuring ({self._failed} failed)"
            words += f" {self._under_way}" if self._under_way else ""
            words += f" {self._waiting}" if self._waiting else ""
            self._bar.update(
                self._task,
                completed=self._done,
                total=self._total,
                description=words,
                left=self._left.text(time.monotonic() - self._started),
            )
        elif not self._quiet and time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            left = self._left.text(self._last_line - self._started)
            under_way = "".join(f"; {text}" for text in (self._under_way, self._waiting) if text)
            print(f"measured {self._done} of {self._total}{under_way}; left: {left}", file=sys.stderr)

    def _hang_text(self, event: Mapping[str, Any]) -> str:
        """Say which technique hung at which point, and what that costs it."""
        block = self._blocks.get(str(event.get("block")), {})
        varying = {k: v for k, v in (block.get("params") or {}).items() if v not in (None, "none")}
        point = ", ".join(f"{k}={v}" for k, v in varying.items())
        others = "; its other points are skipped (--keep-going tries them)" if self._skips else ""
        label = event.get("label") if event.get("label") in self._labels else "a technique"
        return f"{label} hung at {point or 'a point'}: {harmless(str(event.get('reason')))}{others}"


def waiting_text(reasons: object) -> str:
    """Say how many tasks wait for a scheduler, and why; of what is no such table nothing is said."""
    known = reasons.items() if isinstance(reasons, Mapping) else ()
    told = [(why, n) for why, n in known if isinstance(n, int) and n > 0 and REASON.fullmatch(str(why))]
    if not told:
        return ""
    number = sum(n for _, n in told)
    whys = ", ".join(str(why) if len(told) == 1 else f"{n} × {why}" for why, n in told)
    return f"{number} task{' waits' if number == 1 else 's wait'} in the queue: {whys}"


def calls_text(event: Mapping[str, Any], labels: Collection[str]) -> str:
    """Say how far the calls to a server are, with the rate at which they were answered since they began.

    Args:
        event: Whatever a rank wrote; of one that is not as it should be nothing is said.
        labels: Of the plan's techniques: no other text of an event is shown.
    """
    label = event.get("label")
    numbers = [event.get(name) for name in ("done", "failed", "sent", "of", "after_s")]
    known = [float(n) for n in numbers if isinstance(n, int | float) and 0 <= n < MOST_CALLS]
    if not isinstance(label, str) or label not in labels or len(known) < len(numbers):
        return ""
    done, failed, sent, asked, after_s = known
    text = f"{label}: {done:.0f} of {asked:.0f} answered, {max(sent - done - failed, 0):.0f} under way"
    text += f", {failed:.0f} failed" if failed else ""
    return text + (f", {done / after_s:.1f}/s" if after_s > 0 else "")
