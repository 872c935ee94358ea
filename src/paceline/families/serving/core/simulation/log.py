"""What a simulation leaves: every step, token and transfer with its virtual time; laws and figures are read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One request's part of a step."""

    call: int
    begin: int
    """Its tokens that were there before."""
    count: int
    ends: bool


@dataclass(slots=True, kw_only=True)
class DoneStep:
    """One step of one worker."""

    worker: int
    begin_s: float
    end_s: float
    parts: list[Part]
    seen: int
    """Requests that the worker saw."""
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Seconds, and the share of the device that the worker had in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of an answer."""

    call: int
    at_s: float
    preempted: int
    """How often the request had lost its memory by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Keys and values of a request that moved from one memory to another."""

    call: int
    source: int
    target: int
    tokens: int
    size_bytes: int
    begin_s: float
    sent_s: float
    """When the last byte was there."""
    end_s: float
    """When the target had room, and the request ran there."""


@dataclass(slots=True, kw_only=True)
class Log:
    """Everything that happened."""

    steps: list[DoneStep] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    memories: list[tuple[int, int]] = field(default_factory=list)
    """Device and blocks of each memory."""
    workers: list[tuple[int, str]] = field(default_factory=list)
    """Memory and phase of each worker."""
    counters: list[dict[str, float]] = field(default_factory=list)
    """Of each memory's engine."""


def log_of(told: Mapping[str, Any]) -> Log:
    """Read what another process has written."""
    return Log(
        steps=[
            DoneStep(
                **{k: s[k] for k in ("worker", "begin_s", "end_s", "seen")},
                parts=[Part(**p) for p in s["parts"]],
                spans=[(float(a), float(b)) for a, b in s["spans"]],
            )
            for s in told["steps"]
        ],
        tokens=[Token(**t) for t in told["tokens"]],
        transfers=[Transfer(**t) for t in told["transfers"]],
        memories=[(int(d), int(b)) for d, b in told["memories"]],
        workers=[(int(m), str(p)) for m, p in told["workers"]],
        counters=[dict(c) for c in told["counters"]],
    )
