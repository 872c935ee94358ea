"""What was asked and what came back, kept line by line the moment it is known: nothing is paid twice.

A file of JSON lines. The first is the setting. Each attempt has a line ``sent`` before it leaves, and one line
``answered``, ``refused`` or ``failed`` when it is over. An attempt whose end is missing was under way when the process
died: nobody here knows whether the server finished it, and the totals name such attempts apart. A last line that was
cut off is put right when the file is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.base.errors import UserError

FILE = "journal.jsonl"
FORMAT = 1
OPEN, CLOSE = "<think>\n", "\n</think>\n\n"
"""Around thinking, where a trace is one text."""
NO_PROBLEM = 0
"""In the place of a problem's key: a request that asks no question, and finds out what the server can do."""
ENDS = ("answered", "refused", "failed", "lacking")
"""Kinds of lines that end an attempt."""
GREEDY = -1
"""Number of the trace that always takes the likeliest token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One whole trace."""

    text: str
    thinking: str
    finish: str
    tokens: int
    prompt_tokens: int
    seconds: float
    pieces: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()

    @property
    def whole(self) -> str:
        """All that the model wrote, thinking in marks."""
        return f"{OPEN}{self.thinking}{CLOSE}{self.text}" if self.thinking else self.text


@dataclass(slots=True, kw_only=True)
class Totals:
    """What all attempts cost together."""

    requests: int = 0
    """Attempts that were sent, whatever became of them."""
    answered: int = 0
    refused: int = 0
    failed: int = 0
    lacking: int = 0
    """Attempts that asked no question, whose refusal told what the server lacks."""
    lost: int = 0
    """Attempts whose answer never came, as their process died, their time was up or their connection broke; the server
    may have worked on them, and may charge for them. Those that ended here are among ``refused`` or ``failed`` too."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """Prompt tokens that the server had read before; None where it never says."""
    request_s: float = 0.0
    """Sum of the answered requests' seconds."""

    def add(self, line: Mapping[str, Any]) -> None:
        """Count one line."""
        kind = line["kind"]
        if kind == "sent":
            self.requests += 1
            self.lost += 1
        elif kind in ENDS:
            self.lost -= not line.get("unknown")
            setattr(self, kind, getattr(self, kind) + 1)
        if kind == "answered":
            self.prompt_tokens += line["prompt_tokens"]
            self.completion_tokens += line["completion_tokens"]
            self.request_s += line["seconds"]
            if line["cached_tokens"] is not None:
                self.cached_tokens = (self.cached_tokens or 0) + line["cached_tokens"]


@dataclass(slots=True, kw_only=True)
class Shelf:
    """What is there of one question."""

    traces: dict[int, Kept] = field(default_factory=dict)
    """By their number, ``GREEDY`` the one that draws nothing."""
    probes: dict[str, Kept] = field(default_factory=dict)
    """By a digest of the text that they continue."""
    failed: dict[int, str] = field(default_factory=dict)
    """Traces that failed in this run, and why; the next run asks for them again."""


class Journal:
    """The file of one evaluation, open for adding; a context. Thread-safe.

    Args:
        folder: Where the file lies or will lie.
        setting: What decides the model's answers, as plain data.
        resume: Go on with the file that is there; else there must be none.

    Raises:
        UserError: There is a file with traces and none is to be gone on with, or the other way round, or it is of
            another setting, or another process is at work on it.
    """

    def __init__(self, folder: Path, setting: Mapping[str, Any], *, resume: bool) -> None:
        self.path = folder / FILE
        self.shelves: dict[int, Shelf] = {}
        """By the problem's key."""
        self.totals = Totals()
        self.earlier = Totals()
        """What was there when the file was opened."""
        self.facts: dict[str, Any] = {}
        """What was found out once: by name."""
        self._lock, self._number = threading.Lock(), 0
        given = {"kind": "setting", "format": FORMAT, **setting}
        if resume and not self.path.exists():
            raise self._misplaced(resume)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            self._begin(given, resume)
        except BaseException:
            os.close(self._file)
            raise
        self.earlier = Totals(**asdict(self.totals))

    def _begin(self, given: Mapping[str, Any], resume: bool) -> None:
        try:
            # Held until the file is closed, however this process ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                "another process is at work on it, and both would pay",
                where=str(self.path),
                expected="one run at a time",
                fix="wait for it, or give --output=ANOTHER_FOLDER",
            ) from error
        lines = list(read_lines(self.path))
        begun = any(line.get("kept") for line in lines)
        if begun and not resume:
            raise self._misplaced(resume)
        if begun or (lines and not _differing(lines[0], given)):
            self._read(lines, given)
        else:
            # Nothing of a question is there, as where a method was refused: no reason to ask for another folder.
            os.ftruncate(self._file, 0)
            self._add(given, sure=True)

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        os.close(self._file)

    def shelf(self, problem: int) -> Shelf:
        """Return what is there of a problem."""
        with self._lock:
            return self.shelves.setdefault(problem, Shelf())

    def name(self) -> str:
        """Return the name of the next request."""
        with self._lock:
            self._number += 1
            return f"r{self._number}"

    def sent(self, name: str, problem: int, what: str) -> None:
        """Note that an attempt leaves now."""
        self._add({"kind": "sent", "name": name, "problem": problem, "what": what})

    def answered(
        self,
        name: str,
        problem: int,
        kept: Mapping[int | str, Kept],
        *,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int | None,
        seconds: float,
    ) -> None:
        """Keep what came back: whole traces by their number, or a probe by its digest."""
        line = {
            "kind": "answered",
            "name": name,
            "problem": problem,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "cached_tokens": cached_tokens,
            "seconds": seconds,
            "kept": [[number, asdict(one)] for number, one in kept.items()],
        }
        self._add(line, sure=True)
        self._shelve(line)

    def ended(
        self, name: str, problem: int, *, again: bool, what: str, status: int | None, unknown: bool
    ) -> None:
        """Note an attempt that gave nothing.

        Args:
            again: The same request is sent again.
            unknown: The server may have worked on it, and nobody here knows what that cost.
        """
        tells = problem == NO_PROBLEM and status is not None
        kind = "refused" if again else "lacking" if tells else "failed"
        line = {"kind": kind, "name": name, "problem": problem, "status": status, "what": what}
        self._add(line | ({"unknown": True} if unknown else {}), sure=True)

    def fact(self, name: str, value: Any) -> Any:
        """Keep what was found out, once: a later run goes by the same; return what holds."""
        if name not in self.facts:
            self.facts[name] = value
            self._add({"kind": "fact", "name": name, "value": value}, sure=True)
        return self.facts[name]

    def replace_fact(self, name: str, value: Any) -> None:
        """Keep what is known by now of something; the last line of a name holds."""
        self.facts[name] = value
        self._add({"kind": "fact", "name": name, "value": value}, sure=True)

    def _add(self, line: Mapping[str, Any], *, sure: bool = False) -> None:
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        with self._lock:
            # One call and no buffer of ours: what was written outlives this process, however that ends.
            os.write(self._file, data)
            self.totals.add(line)
        if sure:
            os.fsync(self._file)

    def _read(self, lines: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
        differing = _differing(lines[0], given)
        if differing:
            name = differing[0]
            raise UserError(
                f"it was begun with {name} {lines[0].get(name)!r}, and not {given[name]!r}",
                where=str(self.path),
                expected="the setting of the first run: methods, samples, budgets, prices and limits may differ",
                fix="give what the first run had, or --output=ANOTHER_FOLDER",
            )
        for line in lines[1:]:
            self.totals.add(line)
            if line["kind"] == "answered":
                self._shelve(line)
            elif line["kind"] == "fact":
                self.facts[line["name"]] = line["value"]
            elif line["kind"] == "sent":
                self._number = max(self._number, int(line["name"][1:]))

    def _shelve(self, line: Mapping[str, Any]) -> None:
        shelf = self.shelf(line["problem"])
        for number, fields in line["kept"]:
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            one = Kept(**given)
            if isinstance(number, int):
                shelf.traces.setdefault(number, one)
            else:
                shelf.probes.setdefault(number, one)

    def _misplaced(self, resume: bool) -> UserError:
        if resume:
            return UserError(
                "there is nothing to go on with",
                where=str(self.path),
                fix="leave --resume out, or name its --output",
            )
        return UserError(
            "an evaluation is there already",
            where=str(self.path),
            expected="an empty folder",
            fix="--resume goes on with it and pays nothing twice; --output=ANOTHER_FOLDER begins anew",
        )


def _differing(held: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return what two settings do not agree on."""
    return [name for name in given if held.get(name) != json.loads(json.dumps(given[name]))]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal, and cut a last one off that was not written whole.

    Raises:
        UserError: A line before the last is damaged, or the first is no setting of this format.
    """
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        # A process was killed while it wrote: its line tells nothing, and the next one must begin on its own.
        with path.open("r+b") as file:
            file.truncate(len(whole))
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(text)
            kind = line["kind"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"the line is damaged: {error}",
                where=f"{path}:{number}",
                fix="take it out, or begin in another folder",
            ) from error
        if number == 1 and (kind != "setting" or line.get("format") != FORMAT):
            raise UserError(
                "it is no journal of this version",
                where=f"{path}:1",
                expected=f"a setting of format {FORMAT}",
                fix="--output=ANOTHER_FOLDER",
            )
        yield line
