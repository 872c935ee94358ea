"""Runs a client in processes of its own: one, or several that share a workload and a clock.

Every process draws nothing: it gets the whole workload and sends its share, so a schedule is the same whatever their
number. All wait for one instant of the monotonic clock that is named when the last of them is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError, PrerequisiteError
from paceline.families.serving.core.load.calls import Call, Messages, Prompt, Workload
from paceline.families.serving.core.load.log.entries import Log, merged, read_log, write_log
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.client import Client, Limits, Tell
from paceline.families.serving.core.load.sending.loops import LoopName, loop_factory, usual_loop
from paceline.families.serving.core.load.sending.redirects import Follow
from paceline.families.serving.core.load.sending.target import Target, Tls
from paceline.families.serving.core.load.sending.wire import response_parser

AHEAD_S = 0.2
"""So that every process has read the instant of the start, and made its connections, before it comes."""
SOON_S = 0.02
"""For calls of which no time is told."""
READY_S = 60.0
GRACE_S = 30.0

_MODULE = "paceline.families.serving.core.load"


def run_load(
    url: str,
    model: str,
    workload: Workload,
    *,
    limits: Limits | None = None,
    processes: int = 1,
    warm: int = 0,
    header: Mapping[str, Any] | None = None,
    as_text: bool = False,
    key: str | None = None,
    handicap_s: float = 0.0,
    loop: LoopName | None = None,
    asking: Asking | None = None,
    redirects: Follow = "same-origin",
    tls: Tls | None = None,
    hurry: bool = True,
    tell: Tell | None = None,
    ahead_s: float = AHEAD_S,
) -> Log:
    """Send a workload to a server and return the log.

    Args:
        url: Address such as ``http://127.0.0.1:8000/v1``.
        model: The model's name there.
        workload: What is sent.
        limits: When the client gives up.
        processes: Of the client.
        warm: Connections that each process makes before the start.
        header: What the log says of the run.
        as_text: Whether token ids are sent as words.
        key: Bearer token; it goes to the processes by a pipe and is in no file.
        handicap_s: Seconds that every receiving wastes, to see that a client too slow is found out.
        loop: Event loop of the client; None takes the fastest that is installed.
        asking: Fields and headers of requests that are left out, renamed or added; None asks as usual.
        redirects: Which redirects are followed, once a call: ``never``, ``same-origin`` or ``anywhere``, to where
            neither ``key`` nor headers of ``asking`` go.
        tls: How a server of HTTPS is known; None: by the system's authorities.
        hurry: Whether the client asks to be scheduled before ordinary processes; its certificate says what it got.
        tell: Told every second how many calls were sent, are done and have failed, over all processes.
        ahead_s: From when all processes are ready to the start; ``SOON_S`` where nobody asks how late calls are.

    Raises:
        PrerequisiteError: httptools is not installed, or a loop that was asked for.
        InfrastructureError: A process of the client has died.
    """
    # Asked here, since a process that lacks it could only die.
    response_parser()
    loop = loop or usual_loop()
    loop_factory(loop)
    limits = limits or Limits()
    asking = asking or Asking()
    secrets = {"key": key, "headers": dict(asking.headers)}
    job = {
        "url": url,
        "model": model,
        "as_text": as_text,
        "redirects": redirects,
        "asking": {**asdict(asking), "headers": {}},
        "limits": asdict(limits),
        "warm": warm,
        "parts": processes,
        "handicap_s": handicap_s,
        "loop": loop,
        "hurry": hurry,
        "tell": tell is not None,
        "tls": None if tls is None else asdict(tls),
        "concurrency": workload.concurrency,
        "cap": workload.cap,
        "calls": [asdict(call) for call in workload.calls],
    }
    with tempfile.TemporaryDirectory(prefix="paceline-load-") as folder:
        place = Path(folder)
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
        running = [_begin(place, part) for part in range(processes)]
        try:
            parts = _conduct(running, place, limits, secrets, tell, ahead_s)
        finally:
            for process in running:
                process.kill()
                process.wait()
    facts: dict[str, Any] = {
        "concurrency": workload.concurrency,
        "cap": workload.cap,
        "calls": len(workload.calls),
        "following": sum(bool(c.after) for c in workload.calls),
    }
    if redirects != "same-origin":
        facts["redirects"] = redirects
    if asking.facts():
        facts["request"] = asking.facts()
    logs = [(log.entries, log.processes[0]) for log in parts]
    return merged({**facts, "processes": processes, "warm": warm, **(header or {})}, logs)


def _begin(place: Path, part: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(place), str(part)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(place / f"stderr-{part}").open("w"),
        text=True,
    )


def _conduct(
    running: list[subprocess.Popen[str]],
    place: Path,
    limits: Limits,
    secrets: dict[str, Any],
    tell: Tell | None,
    ahead_s: float,
) -> list[Log]:
    for part, process in enumerate(running):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(secrets) + "\n")
        process.stdin.flush()
        # One after another is enough: nobody begins before the instant, which is named when all are ready.
        if process.stdout.readline().strip() != "ready":
            raise InfrastructureError(_last_words(place, part))
    # CLOCK_MONOTONIC is one clock for all processes of a machine, so parts need no synchronising.
    origin_ns = time.monotonic_ns() + round(ahead_s * 1e9)
    for process in running:
        assert process.stdin is not None
        process.stdin.write(f"{origin_ns}\n")
        process.stdin.flush()
    logs: list[Log] = []
    end = time.monotonic() + limits.run_s + GRACE_S
    if tell is not None:
        _listen(running, end, tell)
    for part, process in enumerate(running):
        try:
            code = process.wait(max(end - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError("the load generator did not end on time") from error
        if code:
            raise InfrastructureError(_last_words(place, part))
        logs.append(read_log(place / f"part-{part}.gz"))
    return logs


def _listen(running: list[subprocess.Popen[str]], end: float, tell: Tell) -> None:
    """Pass on what the processes tell of how far they are, until all have closed their output."""
    latest: dict[int, dict[str, int]] = {}
    pending = [b""] * len(running)
    with selectors.DefaultSelector() as ready:
        for part, process in enumerate(running):
            assert process.stdout is not None
            ready.register(process.stdout.fileno(), selectors.EVENT_READ, part)
        while ready.get_map() and time.monotonic() < end:
            for key, _ in ready.select(1.0):
                said = os.read(key.fd, 65536)
                if not said:
                    ready.unregister(key.fd)
                    continue
                *lines, pending[key.data] = (pending[key.data] + said).split(b"\n")
                if lines:
                    latest[key.data] = json.loads(lines[-1])
                    names = latest[key.data]
                    tell({name: sum(told[name] for told in latest.values()) for name in names})


def _last_words(place: Path, part: int) -> str:
    said = (place / f"stderr-{part}").read_text(encoding="utf-8", errors="replace").strip()
    return f"a process of the load generator has died: {said[-800:] or 'it said nothing'}"


def main(arguments: list[str]) -> int:
    """Be one process: read the job, say ``ready``, wait for the instant, send, write the log."""
    place, part = Path(arguments[0]), int(arguments[1])
    job = json.loads((place / "job.json").read_text(encoding="utf-8"))
    secrets = json.loads(sys.stdin.readline())
    calls = tuple(
        Call(**{**c, "prompt": _prompt(c["prompt"]), "after": tuple(c["after"])}) for c in job["calls"]
    )
    workload = Workload(calls=calls, concurrency=job["concurrency"], cap=job["cap"])
    asking = Asking(
        **{**job["asking"], "leave_out": tuple(job["asking"]["leave_out"]), "headers": secrets["headers"]}
    )
    target = Target.of(
        job["url"],
        job["model"],
        key=secrets["key"],
        as_text=job["as_text"],
        asking=asking,
        redirects=job["redirects"],
        tls=None if job["tls"] is None else Tls(**job["tls"]),
    )
    try:
        client = Client(
            target,
            workload,
            Limits(**job["limits"]),
            part=part,
            parts=job["parts"],
            warm=job["warm"],
            handicap_s=job["handicap_s"],
            hurry=job["hurry"],
            tell=_say if job["tell"] else None,
        )
    except PrerequisiteError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    origin_ns = int(sys.stdin.readline())
    with asyncio.Runner(loop_factory=loop_factory(job["loop"])) as runner:
        facts = runner.run(client.run(origin_ns))
    entries = tuple(client.entries.values())
    write_log(place / f"part-{part}.gz", Log(header={}, entries=entries, processes=(facts,)))
    return 0


def _say(numbers: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(numbers) + "\n")
    sys.stdout.flush()


def _prompt(given: list[int] | str | dict[str, list[tuple[str, str]]]) -> Prompt:
    if isinstance(given, dict):
        return Messages(tuple((role, text) for role, text in given["turns"]))
    return given if isinstance(given, str) else tuple(given)
