"""Child processes that never outlive their creator: namespace shells and delay programs.

A namespace without a name lives as long as a process in it, and everything inside (veths,
bridges, rules) goes with it. So cleaning up is dying: the kernel kills each of these children
when the thread that started it ends (``PR_SET_PDEATHSIG``), and the end of their standard input
tells them too. Nothing is left even after SIGKILL.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from typing import Final

from paceline.base.errors import InfrastructureError, UserError

ANSWER_TIMEOUT_S: Final = 20.0

_DONE: Final = "@@done"
# The creator may die before the death signal is registered: then the parent is somebody else.
_IF_PARENT_LIVES: Final = '[ "$PPID" = "$0" ] && exec "$@"'


def system_environment() -> dict[str, str]:
    """Return this process's environment with the administrator's folders on PATH."""
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", "LC_ALL": "C"}


class Child:
    """A process that takes commands, answers in lines, and dies with its creator."""

    def __init__(self, title: str, command: list[str]) -> None:
        """Start the process.

        Args:
            title: What error messages call it.
            command: Program and arguments.

        Raises:
            UserError: Not the main thread, whose end is the end of the process.
        """
        if threading.current_thread() is not threading.main_thread():
            raise UserError(
                f"{title} was started outside the main thread",
                expected="the main thread: the kernel kills a child when its starting thread ends",
                fix="create the Network in the main thread and hand it to other threads",
            )
        self.title = title
        self._unread = b""
        guard = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", _IF_PARENT_LIVES, str(os.getpid())]
        self._process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            process_group=0,  # Ctrl-C is for the creator, which closes its children in order
            env=system_environment(),
        )

    @property
    def pid(self) -> int:
        """Process identifier; not reused before ``close``, which reaps the process."""
        return self._process.pid

    def alive(self) -> bool:
        """Tell whether the process still runs, without reaping it."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def send(self, text: str) -> None:
        """Write to the process's standard input.

        Raises:
            InfrastructureError: The process has ended.
        """
        assert self._process.stdin is not None
        unsent = memoryview(text.encode())
        try:
            while unsent:
                unsent = unsent[self._process.stdin.write(unsent) or 0 :]
        except BrokenPipeError:
            raise self._ended("") from None

    def read_line(self) -> str:
        """Wait for the next line that the process writes.

        Raises:
            InfrastructureError: It ended, or stayed silent for ``ANSWER_TIMEOUT_S``.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while b"\n" not in self._unread:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            if not select.select((descriptor,), (), (), remaining_s)[0]:
                raise InfrastructureError(f"{self.title} gave no answer in {ANSWER_TIMEOUT_S:g} s")
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise self._ended(self._unread.decode(errors="replace"))
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def _ended(self, output: str) -> InfrastructureError:
        detail = f": {output.strip()}" if output.strip() else ""
        return InfrastructureError(f"{self.title} (process {self.pid}) has ended{detail}")

    def kill(self) -> None:
        """Kill the process without waiting for its end."""
        self._process.kill()

    def close(self) -> None:
        """Kill and reap the process and close its pipes; harmless when repeated."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Holder(Child):
    """A shell in a new network namespace: it keeps the namespace alive and runs scripts in it."""

    def __init__(self, title: str) -> None:
        """Start the shell; its namespace exists once its first script has finished."""
        super().__init__(title, ["unshare", "--net", "sh", "-s"])

    @property
    def namespace(self) -> str:
        """Path that ``enter`` and ``nsenter --net=`` take."""
        return f"/proc/{self.pid}/ns/net"

    def start(self, script: str) -> None:
        """Begin to run a script in the namespace, up to its first failing command."""
        self.send(f"(set -e\n{script}) </dev/null 2>&1\necho {_DONE} $?\n")

    def finish(self) -> None:
        """Wait for the script that ``start`` began.

        Raises:
            InfrastructureError: A command of it failed; the message has what it printed.
        """
        output: list[str] = []
        try:
            while not (line := self.read_line()).startswith(_DONE):
                output.append(line)
        except InfrastructureError as error:
            raise InfrastructureError("\n  ".join([str(error), *output])) from None
        status = line.removeprefix(_DONE).strip()
        if status != "0":
            title = f"{self.title}: a command failed with status {status}"
            raise InfrastructureError("\n  ".join([title, *output]))
