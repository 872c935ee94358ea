"""The judge's handle to timing processes: starts them, asks them under a time limit, ends them whatever they did."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.families.kernels.core import early
from paceline.families.kernels.core.operators import TensorSpec
from paceline.worker.channel import Channel, ChannelClosedError
from paceline.worker.ranks.session import Case, CaseError
from paceline.worker.sandbox import memory

_monotonic = time.monotonic
_perf_ns = time.perf_counter_ns
ALIGNMENT = 4096
START_S = 120.0
"""Time for the fork server to import torch."""
MAX_PRINTED, MAX_REASON = 4000, 300
"""Characters of a dead process's log that a record keeps, and that a reason quotes."""
DTYPE_NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.float8_e4m3fn: "float8_e4m3fn",
}


class Region:
    """Memory that a timing process shares with its judge: inputs on the way in, outputs on the way out."""

    def __init__(self, size: int) -> None:
        self.size = max(size, ALIGNMENT)
        # Without a name in any file system: nothing is left behind, however a process ends.
        self.descriptor = os.memfd_create("paceline-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        self._map = mmap.mmap(self.descriptor, self.size)
        # Whoever could cut it off would end its judge, which reads there, and with it all other techniques.
        memory.keep_size(self.descriptor)
        self._next = 0

    def place(self, shape: Sequence[int], dtype: torch.dtype) -> dict[str, Any]:
        """Reserve room for a tensor."""
        offset = self._next
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        self._next = -(-(offset + num_bytes) // ALIGNMENT) * ALIGNMENT
        if self._next > self.size:
            raise MemoryError("the shared region is too small")
        return {"offset": offset, "shape": list(shape), "dtype": DTYPE_NAMES[dtype]}

    def view(self, place: Mapping[str, Any]) -> Tensor:
        """Return the tensor at a place."""
        dtype = next(d for d, name in DTYPE_NAMES.items() if name == place["dtype"])
        count = torch.Size(place["shape"]).numel()
        flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=place["offset"])
        return flat.view(place["shape"])

    def close(self) -> None:
        """Give the memory back once nobody maps it any more."""
        # The map lives on while tensors refer to it.
        os.close(self.descriptor)

    @staticmethod
    def bytes_for(specs: Sequence[TensorSpec]) -> int:
        """Return the room that tensors need."""
        return sum(-(-max(s.num_bytes, 1) // ALIGNMENT) * ALIGNMENT for s in specs)


class ForkServer:
    """The process that timing processes are forked from; one for a launch."""

    def __init__(self) -> None:
        self._process, self._channel = early.take()

    def start(
        self, case: Case, *, device: str, threads: int, log: Path, reference_timer: str = "none"
    ) -> TimingProcess:
        """Start a process for one technique.

        Args:
            case: The technique.
            device: Torch's name of the device that it computes on.
            threads: Of torch, there.
            log: Where the process writes what it prints.
            reference_timer: Of another tool, which it is to be timed with besides.

        Raises:
            CaseError: None could be started.
        """
        mine, theirs = Channel.pair()
        request = {
            "do": "start",
            "job": str(Path.cwd()),
            "module": case.module,
            "technique": case.technique,
            "options": dict(case.options),
            "device": device,
            "threads": threads,
            "reference_timer": reference_timer,
            "log": str(log),
            "memory": os.environ.get("PACELINE_RANK_MEMORY"),
        }
        try:
            self._channel.send(request, [theirs.fileno()])
            reply, _ = self._channel.receive(START_S)
        except (ChannelClosedError, TimeoutError) as error:
            raise CaseError("infrastructure", f"no cell could be started: {error}") from error
        finally:
            # Ours, or the end of a dead process would never be seen on this channel.
            theirs.close()
        return TimingProcess(self, mine, int(reply["pid"]), log)

    def end(self, pid: int) -> int | None:
        """End a timing process with all that it started; return its exit code, or minus the signal."""
        try:
            self._channel.send({"do": "end", "pid": pid})
            reply, _ = self._channel.receive(START_S)
        except (ChannelClosedError, TimeoutError):
            return None
        return int(reply["status"])

    def close(self) -> None:
        """End the fork server, and with it every timing process."""
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def scheduled_ns(pid: int | None) -> tuple[int, int]:
    """Return how long a process's first thread has run so far, and has waited for a core.

    Zeros where the kernel does not tell; None stands for this process.
    """
    try:
        running, waiting = Path(f"/proc/{pid or 'self'}/schedstat").read_text().split()[:2]
        return int(running), int(waiting)
    except (OSError, ValueError):
        return 0, 0


def _end_of(log: Path) -> str | None:
    """Return the end of what a process printed, or None where it printed nothing."""
    try:
        with log.open("rb") as file:
            # Of a log of any size the end alone.
            file.seek(max(log.stat().st_size - 4 * MAX_PRINTED, 0))
            text = file.read().decode(errors="replace").strip()
    except OSError:
        return None
    return text[-MAX_PRINTED:] or None


class Ends(Protocol):
    """Who started a timing process, and can end it."""

    def end(self, pid: int) -> int | None:
        """End it with all that it started; return its exit code, or minus the signal."""
        ...


class TimingProcess:
    """One technique in its own process."""

    def __init__(self, server: Ends, channel: Channel, pid: int, log: Path) -> None:
        self._server = server
        self._channel = channel
        self._log = log
        self.pid = pid
        self.ended = False

    def ask(
        self, message: dict[str, Any], *, timeout_s: float, descriptors: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Send a request and wait for the answer.

        ``wall_ns`` in it is the time that passed here, without what either process spent waiting for a core;
        ``ran_ns`` how long the process ran meanwhile, as the kernel counts it.

        Raises:
            CaseError: The technique failed, died, or did not answer in time; then the process is gone.
        """
        if self.ended:
            raise CaseError("crashed", "its process has ended")
        try:
            ran_ns, waited_ns = scheduled_ns(self.pid)
            # Both processes may wait for a core, and neither wait is time of the pass.
            waited_ns += scheduled_ns(None)[1]
            start = _perf_ns()
            self._channel.send(message, descriptors)
            reply, _ = self._channel.receive(timeout_s)
            # Before the kernel's figures are read again, which takes time of its own.
            wall_ns = _perf_ns() - start
            running, waiting = scheduled_ns(self.pid)
            wall_ns -= waiting + scheduled_ns(None)[1] - waited_ns
        except TimeoutError as error:
            self.end()
            raise CaseError("timeout", f"no answer within {timeout_s:g} s to '{message['do']}'") from error
        except (ChannelClosedError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CaseError(*self._obituary(self.end(), message["do"])) from error
        if not reply.get("ok"):
            raise CaseError(str(reply["status"]), str(reply["reason"]), reply.get("detail"))
        return {**reply, "wall_ns": wall_ns, "ran_ns": running - ran_ns}

    def run(
        self,
        count: int,
        *,
        timed: bool,
        timeout_s: float,
        hot: bool = False,
        flushed: bool = False,
        clock: str = "own",
    ) -> dict[str, Any]:
        """Run a pass of calls, and have what they left behind checked after the clocks have stopped.

        A hot pass reads its tensors before the clock starts. Where caches were ``flushed``, no call comes before the
        pass. The clock is the device's own, or the ``host``'s.

        Raises:
            CaseError: The technique failed, or left its contract.
        """
        message = {
            **{"do": "run", "count": count, "timed": timed},
            **{"hot": hot, "flushed": flushed, "clock": clock},
        }
        reply = self.ask(message, timeout_s=timeout_s)
        # Checks that can wait would otherwise be in the judge's clock, beside the pass.
        self.ask({"do": "settle"}, timeout_s=timeout_s)
        return reply

    def _obituary(self, status: int | None, doing: str) -> tuple[str, str, str | None]:
        """Return status, reason and the end of what the process printed."""
        printed = _end_of(self._log)
        # The kernel's out-of-memory killer leaves no other trace.
        if status is None or status == -signal.SIGKILL:
            reason = f"its process was killed (signal 9) at '{doing}'; the system may have run out of memory"
        elif status < 0:
            reason = f"its process died of {signal.Signals(-status).name} at '{doing}'"
        else:
            reason = f"its process left with exit code {status} at '{doing}'"
            # An exception's own line is the last of its traceback.
            reason += f": {printed.splitlines()[-1][:MAX_REASON]}" if printed else ""
        return "crashed", reason, printed

    def end(self) -> int | None:
        """End the process; its exit code, or None when it had ended before."""
        if self.ended:
            return None
        self.ended = True
        self._channel.close()
        return self._server.end(self.pid)
