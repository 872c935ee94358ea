"""The judge's handle to a candidate in its sandbox: asks it under a time limit, times it by the judge's own clock."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.families.kernels.core.timing_process.client import TimingProcess
from paceline.worker.channel import ChannelClosedError
from paceline.worker.ranks.session import Case, CaseError
from paceline.worker.sandbox import processor_timer, stopping
from paceline.worker.sandbox.bubblewrap import Mounted
from paceline.worker.sandbox.channel import ForeignAnswerError
from paceline.worker.sandbox.running import Sandbox

_perf_ns = time.perf_counter_ns

PACKAGE = Path(__file__).resolve().parents[4]
"""The engine that runs here."""
THERE = "/opt/paceline"
PROGRAM = "paceline.families.kernels.core.sandboxed.worker"
ENDS = frozenset({"incorrect", "refused", "unsupported", "crashed", "out_of_memory"})
"""What a candidate may say of its own end."""
KEPT_VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "NUMEXPR_", "TORCH_CPU_")
"""Beginnings of the names of variables by which libraries compute; a shipped technique has the same."""
POLL_S = 0.00005
MEMORY_SHARE = 2
"""Without a limit of the runner's a candidate may have this part of the machine's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """What the judge saw of a pass."""

    wall_ns: int
    """From before the candidate was let go until all of its threads had stopped."""
    cpu_ns: int
    """Processor time of all of its threads meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A stop in the middle of a candidate's calls."""

    after_ns: int
    """Processor time of any of its threads since it was let go."""
    all_after_ns: int
    """That of all of its threads together: some may be new."""
    take: Callable[[], None]
    """Looks at its memory, or changes it; nothing of the candidate's runs meanwhile."""


class SandboxedProcess(TimingProcess):
    """One candidate in its sandbox; stopped whenever it is not asked, so that it slows nobody's passes down."""

    def __init__(self, kind: str, config: dict[str, Any], log: Path) -> None:
        """Start it.

        Raises:
            CaseError: It could not be started.
        """
        job = Path(config["job"])
        self.sandbox = Sandbox(kind, _mounted(job, config["module"]), _program(), log)
        self.is_ending = False
        super().__init__(_Ended(self), self.sandbox.channel, self.sandbox.pid, log)
        self.kind = kind
        self._rest_ns: int | None = None
        """Its processor time when it was stopped after a pass; it must be the same when it is asked again."""

    def ask(
        self, message: dict[str, Any], *, timeout_s: float, descriptors: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Send a request and wait for the answer, of which nothing is believed that could be checked.

        Raises:
            CaseError: The candidate failed, died, or did not answer in time; then the process is gone.
        """
        if not self.ended:
            self._require_rest()
            stopping.go_on(self.pid)
        try:
            reply = super().ask(message, timeout_s=timeout_s, descriptors=descriptors)
        except ForeignAnswerError:
            self.end()
            raise
        except CaseError as error:
            raise _admitted(error) from error
        finally:
            if not self.ended:
                stopping.begin_to_stop(self.pid)
        if reply.get("changed_input") is not None:
            raise CaseError("incorrect", "an input was changed")
        return reply

    def configure(self, config: dict[str, Any], *, timeout_s: float) -> None:
        """Say what is to be computed; from its answer on the judge hears of each process that is to be started there.

        Raises:
            CaseError: It could not be started.
        """
        self.sandbox.channel.send({"do": "config", "user": self.sandbox.user, **config})
        try:
            self.sandbox.channel.receive_starts(timeout_s)
        except TimeoutError as error:
            self.end()
            raise CaseError("timeout", f"no answer within {timeout_s:g} s to 'config'") from error
        except ChannelClosedError as error:
            raise CaseError(*self._obituary(self.end(), "config")) from error

    def end(self) -> int | None:
        """End the sandbox; the candidate's exit code where it ended itself, or None."""
        if not self.ended:
            self.is_ending = self.sandbox.channel.is_closed()
        return super().end()

    def timed_call(
        self,
        *,
        timeout_s: float,
        fill: Callable[[], None],
        take: Callable[[], None],
        look: Look | None = None,
    ) -> TimedCall:
        """Stop the candidate, fill its memory, let it compute, stop it again, and take what it has left.

        Args:
            timeout_s: For the answer.
            fill: Writes inputs and poisons outputs; nothing of the candidate's runs meanwhile.
            take: Copies outputs; nothing of the candidate's runs meanwhile.
            look: Stops it in the middle, too; the time by the judge's clock then says nothing.

        Raises:
            CaseError: It failed, died, did not answer in time, ran while it was stopped, has another process running or
                started one; it is gone.
        """
        try:
            self._require_rest()
            stopping.stop(self.pid)
            self._rest_ns = before_ns = stopping.at_rest_ns(self.pid)
            self._alone()
            fill()
            self._require_rest()
            self.sandbox.channel.is_timing = True
            wall_ns = self._let_go({"do": "call"}, timeout_s, look)
            self.sandbox.channel.is_timing = False
            self._rest_ns = stopping.at_rest_ns(self.pid)
            cpu_ns = self._rest_ns - before_ns
            self._alone()
            take()
            stopping.require_rest(self.pid, self._rest_ns)
        except BaseException:
            # It may have another process, which nothing stops.
            self.end()
            raise
        return TimedCall(wall_ns=wall_ns, cpu_ns=cpu_ns)

    def _let_go(self, message: dict[str, Any], timeout_s: float, look: Look | None) -> int:
        """Let the stopped candidate do what a message asks for, and stop it; return the nanoseconds in between.

        Raises:
            CaseError: It failed, died, or did not answer in time.
        """
        try:
            # Nobody reads it yet: the clock starts with the candidate.
            self._channel.send(message)
            start = _perf_ns()
            timers = None if look is None else _timers(self.pid, look.after_ns)
            stopping.go_on(self.pid)
            if look is not None:
                self._look(look, timers)
            reply, _ = self._channel.receive(timeout_s)
            stopping.stop(self.pid)
            # Whatever a thread writes after the answer was sent is within the time; after this nothing is written.
            wall_ns = _perf_ns() - start
        except TimeoutError as error:
            raise CaseError("timeout", f"no answer within {timeout_s:g} s to '{message['do']}'") from error
        except ChannelClosedError as error:
            raise CaseError(*self._obituary(self.end(), message["do"])) from error
        if not reply.get("ok"):
            failed = CaseError(str(reply.get("status")), str(reply.get("reason")), reply.get("detail"))
            raise _admitted(failed)
        return wall_ns

    def _look(self, look: Look, timers: contextlib.ExitStack | None) -> None:
        """Wait until the candidate is stopped in the middle, look at its memory, and let it go on."""
        if timers is None:
            # Asleep and not spinning: who wakes up gets a core soon, on a busy machine too.
            time.sleep(look.after_ns * 1e-9)
        else:
            # Closed before it goes on, lest it be stopped again.
            before_ns = stopping.cpu_ns(self.pid)
            with timers:
                while not (self._channel.has_message(POLL_S) or stopping.is_stopped(self.pid)):
                    if stopping.cpu_ns(self.pid) - before_ns >= look.all_after_ns:
                        break
        stopping.stop(self.pid)
        rest_ns = stopping.at_rest_ns(self.pid)
        look.take()
        stopping.require_rest(self.pid, rest_ns)
        stopping.go_on(self.pid)

    def _require_rest(self) -> None:
        """Make sure that it has not run since its last pass, and forget that pass.

        Raises:
            CaseError: It has run; it is gone.
        """
        rest_ns, self._rest_ns = self._rest_ns, None
        if rest_ns is None:
            return
        try:
            stopping.require_rest(self.pid, rest_ns)
        except CaseError:
            self.end()
            raise

    def _alone(self) -> None:
        """Make sure that nothing else runs in the sandbox, which could compute while the candidate is stopped.

        Raises:
            CaseError: Another process lives there.
        """
        if stopping.others(self.sandbox.init, self.pid):
            raise CaseError("refused", "a process of its own lives while calls are timed")


def _timers(pid: int, after_ns: int) -> contextlib.ExitStack | None:
    try:
        return processor_timer.of_each_thread(pid, after_ns)
    except OSError:
        # In a container that may not count: the judge's own clock, by which fewer stops tell something.
        return None


def _admitted(error: CaseError) -> CaseError:
    """Return how a candidate may end: by what it says itself, if that is an end."""
    if error.status in ENDS | {"timeout"}:
        return error
    return CaseError("crashed", error.reason, error.detail)


class _Ended:
    """Ends a sandbox as the fork server ends a timing process."""

    def __init__(self, process: SandboxedProcess) -> None:
        self._process = process

    def end(self, pid: int) -> int | None:
        """End everything there."""
        return self._process.sandbox.end(is_ending=self._process.is_ending)


def start(
    kind: str,
    case: Case,
    *,
    threads: int,
    log: Path,
    timeout_s: float,
    load: dict[str, Any],
) -> SandboxedProcess:
    """Start a sandbox for a candidate and let it import the candidate.

    Args:
        kind: Which sandbox.
        case: The candidate; of an idle one only the module's name counts.
        threads: Of torch, there.
        log: Where it writes what it prints.
        timeout_s: For the import.
        load: Says what is loaded: ``idle`` for what does nothing.

    Raises:
        CaseError: It could not be started, or its candidate cannot be imported.
    """
    config = {
        "job": THERE,
        "module": case.module,
        "technique": case.technique,
        "options": dict(case.options),
        "device": "cpu",
        "threads": threads,
        "reference_timer": "none",
        "memory": os.environ.get("PACELINE_RANK_MEMORY") or str(_memory()),
    }
    found = SandboxedProcess(kind, {**config, "job": str(Path.cwd())}, log)
    try:
        found.configure(config, timeout_s=timeout_s)
        found.ask({"do": "load", **load}, timeout_s=timeout_s)
    except CaseError:
        found.end()
        raise
    return found


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_SHARE


def _program() -> list[str]:
    return [sys.executable, "-s", "-B", "-m", PROGRAM]


def _mounted(job: Path, module: str) -> Mounted:
    """Return what a candidate sees: the engine, techniques that it may build on, and its own file."""
    folders = {str(PACKAGE): f"{THERE}/engine/paceline"}
    if (job / "baselines").is_dir():
        folders[str(job / "baselines")] = f"{THERE}/baselines"
    file = f"user/{module.removeprefix('user:')}.py"
    if (job / file).is_file():
        folders[str(job / file)] = f"{THERE}/{file}"
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
    environment = {
        **kept,
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{THERE}/engine",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return Mounted(folders=folders, environment=environment, working_folder=THERE)
