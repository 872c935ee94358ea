"""Sends the calls of one process at their instants, whatever the server does, and keeps the log.

An open loop's calls are due at fixed instants behind the start; nothing that happens meanwhile moves them, and the time
of a call that could not be sent runs from the instant at which it was due. A closed loop's sessions begin when a place
is free, and keep it to their end; calls that wait for others are due when those have ended, whatever the loop.
"""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.families.serving.core.load.calls import Call, Prompt, Workload, carried, prompt_lengths
from paceline.families.serving.core.load.log.entries import COMPLETE, Entry, ProcessFacts
from paceline.families.serving.core.load.sending.alarm import Alarms
from paceline.families.serving.core.load.sending.following import Answers
from paceline.families.serving.core.load.sending.places import Places
from paceline.families.serving.core.load.sending.redirects import Origin, Place, next_place
from paceline.families.serving.core.load.sending.target import Target
from paceline.families.serving.core.load.sending.wire import Connection, SlowedConnection, response_parser

_clock_ns = time.monotonic_ns

BELL_NS = 10_000_000
SWEEP_NS = 50_000_000
TOLD_NS = 1_000_000_000

Tell = Callable[[dict[str, int]], None]
"""Takes the numbers of calls that were sent, are done and have failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the client gives up."""

    call_s: float = 120.0
    """On one call, behind its sending."""
    silence_s: float = 60.0
    """On a call of which nothing comes."""
    run_s: float = 600.0
    """On the run, behind its start."""


class Client:
    """One process's part of a run.

    Args:
        target: The server.
        workload: The run's calls, of which this process sends its share.
        limits: When to give up.
        part: Which process this is.
        parts: How many there are.
        warm: Connections that stand before the start.
        handicap_s: Seconds that every receiving wastes, to see that a client too slow is found out.
        hurry: Whether it asks to be scheduled before ordinary processes.
        tell: Told every second how many calls were sent, are under way, are done and have failed.
    """

    def __init__(
        self,
        target: Target,
        workload: Workload,
        limits: Limits,
        *,
        part: int = 0,
        parts: int = 1,
        warm: int = 0,
        handicap_s: float = 0.0,
        hurry: bool = True,
        tell: Tell | None = None,
    ) -> None:
        self._target, self._limits, self._part = target, limits, part
        self._calls = {c.number: c for c in workload.share(part, parts)}
        self._free = Places(workload, self._calls.values(), part=part, parts=parts)
        self._warm, self._handicap_s = warm, handicap_s
        self._parser = response_parser()
        # Bytes are made before the start, where that can be: encoding a long prompt takes milliseconds of the event
        # loop.
        self._requests = {n: target.request(c, c.prompt) for n, c in self._calls.items() if not c.carries}
        self._prompts: dict[int, Prompt] = {n: c.prompt for n, c in self._calls.items() if not c.carries}
        meant = prompt_lengths(self._calls.values())
        self.entries = {
            n: Entry(
                number=n,
                tenant=c.tenant,
                due_ns=None,
                asked_tokens=c.output_tokens,
                asked_prompt_tokens=meant[n],
            )
            for n, c in self._calls.items()
        }
        self._answers = Answers(self._calls.values(), self.entries)
        self._missing = {n: len(set(c.after)) for n, c in self._calls.items() if c.after}
        self._waiting_for: dict[int, list[int]] = {}
        for number, call in self._calls.items():
            for other in set(call.after):
                self._waiting_for.setdefault(other, []).append(number)
        self._left = len(self._calls)
        self._idle: dict[Origin, list[Connection]] = {}
        self._carrying: dict[int, Connection] = {}
        self._tls = target.tls
        self._places: dict[int, Place] = {}
        """Where calls go that were sent on."""
        self._in_flight = self._num_done = self._num_failed = 0
        self._hurry, self._tell = hurry, tell
        self._tasks: set[asyncio.Task[None]] = set()
        self._lags_s: list[float] = []
        self._over = False

    async def run(self, origin_ns: int) -> ProcessFacts:
        """Send all calls from an instant on and return when the last has ended, or the run's time is over.

        Args:
            origin_ns: The start, of ``time.monotonic_ns``; a little ahead, so that connections can be made.
        """
        urgent = self._hurry and _hurry()
        loop = asyncio.get_running_loop()
        self._loop, self._origin_ns, self._alarms = loop, origin_ns, Alarms(loop)
        self._bell_ns = origin_ns
        self._done = asyncio.Event()
        # Before the start, so that handshakes are in no call's time unless a server needs more connections.
        await asyncio.gather(*(self._open(None) for _ in range(self._warm)))
        collecting = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection in the middle would be a pause that servers do not make
        # After preparations: the share of a core is of the time in which calls were sent.
        began_s, cpu_s = time.monotonic(), time.process_time()
        try:
            self._begin()
            await self._done.wait()
        finally:
            self._over = True
            cpu_s = time.process_time() - cpu_s
            wall_s = time.monotonic() - began_s
            if collecting:
                gc.enable()
            gc.unfreeze()
            await self._close()
        lags_s = tuple(self._lags_s)
        return ProcessFacts(
            part=self._part,
            cpu_s=cpu_s,
            wall_s=wall_s,
            lags_s=lags_s,
            urgent=urgent,
            loop=type(loop).__module__.partition(".")[0],
        )

    def _begin(self) -> None:
        if not self._left:
            self._done.set()
            return
        for call in self._calls.values():
            if call.at_s is not None:
                due_ns = round(call.at_s * 1e9)
                self._alarms.at(self._origin_ns + due_ns, _later(self._due, call.number, due_ns))
        self._alarms.at(self._origin_ns, self._pump)
        self._alarms.at(self._origin_ns, self._ring)
        self._alarms.at(self._origin_ns + SWEEP_NS, self._sweep)
        if self._tell is not None:
            self._alarms.at(self._origin_ns + TOLD_NS, self._told)

    def _due(self, number: int, due_ns: int) -> None:
        self.entries[number].due_ns = due_ns
        self._free.add(number)
        self._pump()

    def _pump(self) -> None:
        """Send what is due, as far as there are places."""
        while not self._over and (number := self._free.next()) is not None:
            entry = self.entries[number]
            # A closed loop's session is due when there is a place. An open loop's due time is never moved: what it
            # waits for here is in its latency, which is how coordinated omission is avoided.
            if entry.due_ns is None:
                entry.due_ns = _clock_ns() - self._origin_ns
            self._in_flight += 1
            self._launch(number)

    def _launch(self, number: int) -> None:
        """Send a call on an idle connection, or on a new one."""
        if self._over:
            return
        idle = self._idle.get(self._place(number).origin, [])
        while idle:
            # The one used last: the least likely to have been closed by the server for idleness.
            connection = idle.pop()
            if connection.usable:
                self._send(connection, number)
                return
        self._start(self._open(number))

    def _place(self, number: int) -> Place:
        return self._places.get(number) or self._target.place(self._calls[number])

    def _send(self, connection: Connection, number: int) -> None:
        self._carrying[number] = connection
        self._answers.sent(number)
        connection.send(self.entries[number], self._requests[number], self._ended)

    async def _open(self, number: int | None) -> None:
        """Make a connection and let it carry a call, or wait for one."""
        origin = self._target.origin if number is None else self._place(number).origin
        try:
            _, connection = await asyncio.wait_for(
                self._loop.create_connection(
                    lambda: self._connection(origin),
                    origin.host,
                    origin.port,
                    ssl=self._secured(origin),
                ),
                self._limits.silence_s,
            )
        except (OSError, TimeoutError, UnicodeError) as error:  # the last: a name that can be no host's
            if number is not None and not self._over:
                entry = self.entries[number]
                entry.tries += 1
                entry.ending, entry.detail = _of_connecting(error), str(error) or type(error).__name__
                entry.ended_ns = _clock_ns() - self._origin_ns
                self._ended(entry)
                self._pump()  # no connection is freed by it, and a closed loop would stand still
            return
        if self._over:
            connection.abandon()
        elif number is None:
            self._idle.setdefault(origin, []).append(connection)
        else:
            self._send(connection, number)

    def _secured(self, origin: Origin) -> ssl.SSLContext | None:
        if (
            origin.secure and self._tls is None
        ):  # of another origin alone; reading certificates takes milliseconds
            self._tls = ssl.create_default_context()
        return self._tls if origin.secure else None

    def _connection(self, origin: Origin) -> Connection:
        if self._handicap_s:
            return SlowedConnection(self._parser, self._origin_ns, self._freed, origin, self._handicap_s)
        return Connection(self._parser, self._origin_ns, self._freed, origin)

    def _freed(self, connection: Connection, usable: bool) -> None:
        if usable and not self._over:
            assert connection.to is not None
            self._idle.setdefault(connection.to, []).append(connection)
        self._pump()

    def _ended(self, entry: Entry) -> None:
        """Note that a call has ended, and see what becomes due by it."""
        number = entry.number
        connection = self._carrying.pop(number, None)
        if entry.ending == "redirected" and not self._over and self._send_on(entry):
            return
        # One more try, only where nothing came back and the connection was an old one: such a server has most likely
        # not read the call. The due time stays.
        if entry.ending == "disconnected" and not entry.chunks and entry.status is None and not entry.resent:
            kept = connection is not None and connection.calls > 1  # idle, and closed by the server meanwhile
            if kept and not self._over:
                entry.resent += 1
                self._start(self._open(number))
                return
        self._in_flight -= 1
        self._answers.ended(number)
        self._free.ended(number, sent=True)
        self._settle(number, answered=entry.ending == COMPLETE)

    def _send_on(self, entry: Entry) -> bool:
        """Send a call to where the server sends it on; return False, with the reason, where it is not to go."""
        assert entry.status is not None
        assert entry.location is not None
        assert entry.ended_ns is not None
        number, asked = entry.number, self._place(entry.number)
        before = [address for _, address, _ in entry.redirects]
        place = next_place(asked, entry.status, entry.location, follow=self._target.redirects, before=before)
        if isinstance(place, str):
            entry.detail = place
            return False
        entry.redirects.append((entry.status, asked.address, entry.ended_ns))
        entry.status = entry.content_type = entry.encoding = entry.location = entry.ended_ns = None
        entry.ending, entry.detail = "cancelled", "the run ended while the call was sent on"
        entry.chunks.clear()
        self._places[number] = place
        self._requests[number] = self._target.sent_on(self._requests[number], place)
        # Later, when the connection that brought the redirect is free: the call goes on there, as a browser's would.
        self._loop.call_soon(self._launch, number)
        return True

    def _settle(self, number: int, *, answered: bool) -> None:
        self._left -= 1
        self._num_done += answered
        self._num_failed += not answered
        for waiting in self._waiting_for.get(number, ()):
            if not answered:
                self._give_up(waiting)
                continue
            self._missing[waiting] -= 1
            if self._missing[waiting] == 0 and self.entries[waiting].ending == "not_sent":
                self._follow(self._calls[waiting])
        if self._left == 0:
            self._done.set()

    def _give_up(self, number: int) -> None:
        if self.entries[number].ending == "not_sent":
            self.entries[number].ending = "waited_in_vain"
            self._free.ended(number, sent=False)
            self._settle(number, answered=False)

    def _follow(self, call: Call) -> None:
        if call.carries:
            before = call.after[0]
            answer = self._answers.answer(before)
            self._prompts[call.number] = carried(self._prompts[before], answer, call.prompt)
            self._requests[call.number] = self._target.request(call, self._prompts[call.number])
        # From when the last of them ended and not from now, so that this client's own delay is not added to the pause.
        last_ns = max(self.entries[n].ended_ns or 0 for n in call.after)
        due_ns = last_ns + round(call.pause_s * 1e9)
        self._alarms.at(self._origin_ns + due_ns, _later(self._due, call.number, due_ns))

    def _ring(self) -> None:
        """Note how late a bell rings that hangs on the same loop."""
        now_ns = _clock_ns()
        self._lags_s.append((now_ns - self._bell_ns) * 1e-9)
        # From now and not from the last due time: after a pause it must not ring many times at once.
        self._answers.read_on()
        self._bell_ns = now_ns + BELL_NS
        self._alarms.at(self._bell_ns, self._ring)

    def _told(self) -> None:
        """Tell how far the run is."""
        assert self._tell is not None
        done, failed = self._num_done, self._num_failed
        self._tell({"sent": done + failed + self._in_flight, "done": done, "failed": failed})
        self._alarms.at(_clock_ns() + TOLD_NS, self._told)

    def _sweep(self) -> None:
        """End what has taken too long."""
        now_ns = _clock_ns() - self._origin_ns
        if now_ns > self._limits.run_s * 1e9:
            self._stop()
            return
        for number, connection in list(self._carrying.items()):
            entry = self.entries[number]
            assert entry.sent_ns is not None
            # Two limits: a server that has died says nothing, one that is slow says little for long.
            heard_ns = entry.redirects[-1][2] if entry.redirects else entry.sent_ns
            heard_ns = entry.chunks[-1][0] if entry.chunks else heard_ns
            if now_ns - entry.sent_ns > self._limits.call_s * 1e9:
                connection.end("timed_out", f"more than {self._limits.call_s:g} s")
            elif now_ns - heard_ns > self._limits.silence_s * 1e9:
                connection.end("stalled", f"nothing for {self._limits.silence_s:g} s")
        self._alarms.at(_clock_ns() + SWEEP_NS, self._sweep)

    def _stop(self) -> None:
        self._over = True
        for connection in list(self._carrying.values()):
            connection.end("cancelled", f"the run's {self._limits.run_s:g} s are over")
        self._done.set()

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in [c for idle in self._idle.values() for c in idle]:
            connection.abandon()
        self._alarms.close()
        await asyncio.sleep(0)


def _later(call: Callable[[int, int], None], number: int, due_ns: int) -> Callable[[], None]:
    return lambda: call(number, due_ns)


def _of_connecting(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "tls" if isinstance(error, ssl.SSLError) else "unreachable"


def _hurry() -> bool:
    """Ask to be scheduled before ordinary processes, for it is the clock; return whether that was granted."""
    try:
        # The lowest real-time priority is enough to be ahead of every ordinary process, the server's included.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    except (OSError, AttributeError):
        return False
    return True
