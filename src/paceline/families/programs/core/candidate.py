"""One program of a block: run after run, each judged by how it ended, by its owner's check, and by what it reports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.families.programs.api.program import SHELL, Program
from paceline.families.programs.core.client import (
    Client,
    Ran,
    environment_of,
    folder_of,
    shell_start_s,
    under_torchrun,
)
from paceline.families.programs.core.reported import (
    Place,
    ReadingError,
    places_of,
    reported_named,
    stamp_of,
)
from paceline.worker.ranks.session import Case, CaseError

LONGEST_HASHED = 256 << 20
"""Files of a command above so many bytes are named without a digest."""
MOST_SHOWN = 3


@dataclass(slots=True, kw_only=True)
class Observed:
    """One timed run."""

    ran: Ran
    reported: Mapping[str, float | str]
    """By metric the figure in the metric's unit, or why there is none."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    """A program that is timed in turn with others."""

    case: Case
    program: Program
    client: Client
    limit_s: float
    begin: Callable[[str], None]
    """Told what comes next: ``build``, ``run`` or ``check``."""
    observed: list[Observed] = field(default_factory=list)
    num_runs: int = 0
    _places: Mapping[str, Place] = field(init=False)
    _environment: Mapping[str, str] = field(init=False)
    _folder: Path = field(init=False)

    def __post_init__(self) -> None:
        """Read what the program says of itself.

        Raises:
            CaseError: A metric or its place cannot be read.
        """
        try:
            self._places = places_of(self.program.reported)
        except ValueError as error:
            raise CaseError("crashed", f"cannot be made: {error}") from error
        self._environment = environment_of(self.program.environment)
        self._folder = folder_of(self.program.folder)

    @property
    def label(self) -> str:
        """Its name in the suite."""
        return self.case.label

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that it reports itself."""
        return list(self._places)

    def build(self) -> None:
        """Call the command that makes the program, where there is one.

        Raises:
            CaseError: It failed.
        """
        if self.program.build:
            self.begin("build")
            ran = self._call(self.program.build, what="its build")
            if ran.code or ran.timed_out:
                raise self._failure(ran, "its build")

    def shell_start_s(self) -> float | None:
        """Return the time that starting the shell takes; None where the program runs in none."""
        if self.program.argv[:2] != (SHELL, "-c"):
            return None
        return shell_start_s(self.client, self._environment, self._folder)

    def observe(self) -> tuple[float, int]:
        """Run it once; return its wall time in seconds and its start.

        Raises:
            CaseError: It failed, hung, left something behind, or its check found it wrong.
        """
        self.begin("run")
        files = {place.file: self._folder / place.file for place in self._places.values() if place.file}
        before = {name: stamp_of(path) for name, path in files.items()}
        ran = self._call(under_torchrun(self.program.argv, self.program.ranks), what="it")
        self.num_runs += 1
        if ran.code or ran.timed_out:
            raise self._failure(ran, "it")
        if ran.left:
            raise CaseError(
                "refused",
                f"left processes behind ({', '.join(ran.left[:MOST_SHOWN])}), which were ended: what they do is in no "
                "time of its runs",
                ran.detail(),
            )
        written = {
            name: path.read_text(encoding="utf-8", errors="replace")
            for name, path in files.items()
            if stamp_of(path) not in (None, before[name])
        }
        self._check(ran)
        self.observed.append(Observed(ran=ran, reported=self._reported(ran, written)))
        return ran.wall_s, ran.start_ns

    def _call(self, argv: Sequence[str], *, what: str, given: str | None = None) -> Ran:
        try:
            return self.client.run(
                argv,
                environment=self._environment,
                folder=self._folder,
                limit_s=self.limit_s,
                given=given,
            )
        except CaseError as error:
            raise CaseError(error.status, f"{what}: {error.reason}", error.detail) from error

    def _failure(self, ran: Ran, what: str) -> CaseError:
        if ran.timed_out:
            return CaseError(
                "timeout", f"{what} did not end within {self.limit_s:g} s{ran.last_words()}", ran.detail()
            )
        return CaseError("crashed", f"{what} {ran.how_ended()}", ran.detail())

    def _check(self, ran: Ran) -> None:
        """Let the owner's check judge a run.

        Raises:
            CaseError: It says that the run was wrong, or cannot be called.
        """
        if not self.program.check:
            return
        self.begin("check")
        judged = self._call(self.program.check, what="its check", given=ran.output)
        if judged.timed_out:
            raise self._failure(judged, "its check")
        if judged.code:
            raise CaseError("incorrect", f"its check {judged.how_ended()}", judged.detail())

    def _reported(self, ran: Ran, files: Mapping[str, str]) -> dict[str, float | str]:
        found: dict[str, float | str] = {}
        for name, place in self._places.items():
            known = reported_named(name)
            assert known is not None
            try:
                found[name] = place.read(ran.output, ran.errors, files) * known.factor
            except ReadingError as error:
                found[name] = str(error)
        return found

    def provenance(self) -> dict[str, Any]:
        """Return the digests of the files that its command names, which are its code as far as anybody can tell."""
        named = [self._folder / word for word in self.program.argv if _is_file(self._folder / word)]
        return {path.name: _digest(path) for path in named}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a word can be anything, such as longer than a name may be
        return False


def _digest(path: Path) -> str | None:
    try:
        if path.stat().st_size > LONGEST_HASHED:
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
