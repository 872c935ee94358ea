"""A progress bar with the remaining time, and plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from paceline.base.units import format_duration

PLAIN_EVERY_S = 15.0


class RunProgress:
    """Shows how far a run is; ``quiet`` shows nothing."""

    def __init__(self, total: int, likely_s: float, *, quiet: bool = False) -> None:
        self._total = total
        self._likely_s = likely_s
        self._quiet = quiet
        self._done = 0
        self._failed = 0
        self._started = time.monotonic()
        self._last_line = self._started
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        if not quiet and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left {task.fields[left]}"),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("measuring", total=total, left=format_duration(likely_s))

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

    def event(self, event: Mapping[str, Any]) -> None:
        """Take note of an event and redraw."""
        kind = event.get("event")
        if kind in ("result", "case_failed"):
            self._done += 1
            if event.get("status") not in ("ok", "skipped", "unsupported"):
                self._failed += 1
        if self._bar is not None:
            words = "measuring" if not self._failed else f"measuring ({self._failed} failed)"
            self._bar.update(
                self._task,
                completed=self._done,
                description=words,
                left=format_duration(self.left_s()),
            )
        elif not self._quiet and time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            left = format_duration(self.left_s())
            print(f"measured {self._done} of {self._total}, about {left} left", file=sys.stderr)

    def left_s(self) -> float:
        """Estimate the remaining seconds from the pace so far, leaning on the plan's estimate at the beginning."""
        elapsed = time.monotonic() - self._started
        share = self._done / max(self._total, 1)
        if share == 0:
            return max(self._likely_s - elapsed, 0.0)
        paced = elapsed / share - elapsed
        planned = max(self._likely_s - elapsed, 0.0)
        return share * paced + (1 - share) * max(planned, paced * 0.5)
