"""The raw log of a run: for every call what was sent and received, and when, on one clock.

It is JSON Lines in gzip. The first line says what was asked for, one line a call follows, then one line a process.
Everything that is published follows from these lines; nothing is counted while the run goes on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

COMPLETE = "complete"
ENDINGS = {
    COMPLETE: "the server ended its answer",
    "refused": "nobody listens at the address",
    "unreachable": "no connection could be made",
    "tls": "the connection could not be secured",
    "status": "the server answered with another status than 2xx",
    "redirected": "the server says that the call should go to another address, and it was not sent there",
    "content_type": "the answer is not a stream of events",
    "malformed": "the answer is not HTTP, or its events are not what the interface says",
    "error_event": "the server told of an error in the middle of its answer",
    "disconnected": "the connection ended in the middle",
    "stalled": "nothing came for too long",
    "timed_out": "the answer took too long",
    "too_long": "the answer has too many bytes",
    "not_sent": "the run ended before it was sent",
    "cancelled": "the run ended before its answer did",
    "waited_in_vain": "a call that it waits for has failed",
}
"""How a call can end, and what that means."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One call of the log; instants are nanoseconds behind the run's start, on the monotonic clock."""

    number: int
    tenant: str
    due_ns: int | None
    """When it should have been sent; None if it never became due."""
    asked_tokens: int
    asked_prompt_tokens: int | None = None
    """Tokens that its prompt is meant to have; None where nobody can say."""
    sent_ns: int | None = None
    """When its bytes were given to the kernel."""
    sent_bytes: int = 0
    connected_ns: int | None = None
    """When its connection stood, if it is the first one there."""
    tries: int = 0
    status: int | None = None
    content_type: str | None = None
    encoding: str | None = None
    """Of the content, as the header says."""
    informational: list[int] = field(default_factory=list)
    """Statuses of the informational responses that came before the answer, and were skipped."""
    location: str | None = None
    """Where the server says that the call should go."""
    redirects: list[tuple[int, str, int]] = field(default_factory=list)
    """Redirects that were followed: status, the address that said so, and the instant; ``sent_ns`` is the first
    sending's."""
    resent: int = 0
    """How often it was sent again on a new connection, since the server had closed an idle one."""
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    """What was received, as the kernel gave it out: instant and bytes of the body."""
    ended_ns: int | None = None
    ending: str = "not_sent"
    """A key of ``ENDINGS``."""
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What one process of the client says about itself."""

    part: int
    cpu_s: float
    """Between start and end."""
    wall_s: float
    lags_s: tuple[float, ...]
    """Lateness of a bell that rings every few milliseconds: how long the event loop was busy with something else."""
    urgent: bool = False
    """Whether the system runs it before ordinary processes."""
    loop: str = "asyncio"
    """Event loop that it ran on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A whole run."""

    header: dict[str, Any]
    entries: tuple[Entry, ...]
    """In order of their numbers."""
    processes: tuple[ProcessFacts, ...]


def merged(header: dict[str, Any], parts: Sequence[tuple[Iterable[Entry], ProcessFacts]]) -> Log:
    """Join what several processes of one run have logged."""
    entries = sorted((e for part, _ in parts for e in part), key=lambda e: e.number)
    return Log(header=header, entries=tuple(entries), processes=tuple(facts for _, facts in parts))


def entry_line(entry: Entry) -> str:
    """Return a call's line; bytes are text of ISO 8859-1, which holds every byte."""
    data = {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
    # As received and not as parsed, so that a reading that proves wrong can be corrected from old logs.
    data["chunks"] = [(at, received.decode("latin-1")) for at, received in entry.chunks]
    return json.dumps({"call": data}, separators=(",", ":"))


def write_log(path: Path, log: Log) -> None:
    """Write a log; the same log gives the same bytes."""
    # No time and no name in gzip's header: they would make the same log other bytes.
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed:
        packed.write(json.dumps({"run": log.header}, sort_keys=True).encode() + b"\n")
        for entry in log.entries:
            packed.write(entry_line(entry).encode() + b"\n")
        for facts in log.processes:
            packed.write(json.dumps({"process": asdict(facts)}).encode() + b"\n")


def read_log(path: Path) -> Log:
    """Read a log.

    Raises:
        ValueError: A line is not one of a log's; the text says which.
    """
    header: dict[str, Any] = {}
    entries: list[Entry] = []
    processes: list[ProcessFacts] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                ((kind, data),) = json.loads(line).items()
                if kind == "run":
                    header = dict(data)
                elif kind == "call":
                    chunks = [(int(at), str(text).encode("latin-1")) for at, text in data.pop("chunks")]
                    entries.append(Entry(**data, chunks=chunks))
                else:
                    processes.append(ProcessFacts(**{**data, "lags_s": tuple(data["lags_s"])}))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: no line of a load log: {error}") from error
    return Log(header=header, entries=tuple(entries), processes=tuple(processes))
