"""How far the building of a site is, told while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeVar

from paceline.base.counting import number_of

Thing = TypeVar("Thing")
FIRST_S, EVERY_S, EVERY_LINE_S = 1.0, 0.5, 10.0
"""Nothing is told of what takes less; how often a terminal's line is written anew; how often a file gets one."""

_now_s = time.monotonic


@dataclass(slots=True, kw_only=True)
class SiteProgress:
    """Counts what was read and made, and tells it: on one line of a terminal, or on a line now and then."""

    to: TextIO | None
    """Where it is told; None for nowhere."""
    _begun_s: float = field(init=False)
    _told_s: float | None = field(init=False, default=None)
    _shown: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._begun_s = _now_s()

    def reading(self, read: Callable[[Path], Thing]) -> Callable[[Path], Thing]:
        """Return a reader of records that counts them."""
        count = 0

        def counted(path: Path) -> Thing:
            nonlocal count
            found = read(path)
            count += 1
            self._tell(f"{number_of(count, 'record')} read")
            return found

        return counted

    def counting(self, things: Iterator[Thing], what: str) -> None:
        """Take things as they come, and count them: "3 of 40 new records read"."""
        for count, _ in enumerate(things, start=1):
            self._tell(f"{count} {what}")

    def making(self, files: Iterator[Thing]) -> Iterator[Thing]:
        """Yield files as they are made, and count them."""
        for count, file in enumerate(files, start=1):
            self._tell(f"{number_of(count, 'file')} made")
            yield file

    def done(self) -> None:
        """Take away what stands on the terminal's line."""
        if self._shown and self.to is not None and self.to.isatty():
            self.to.write("\r\x1b[K")
            self.to.flush()

    def _tell(self, text: str) -> None:
        if self.to is None:
            return
        now_s, terminal = _now_s(), self.to.isatty()
        since_s = now_s - (self._begun_s if self._told_s is None else self._told_s)
        if since_s < (FIRST_S if self._told_s is None else EVERY_S if terminal else EVERY_LINE_S):
            return
        self._told_s, self._shown = now_s, True
        self.to.write(f"\r\x1b[K{text}" if terminal else f"{text}\n")
        self.to.flush()
