"""Modules that run as ``python -m`` does, in processes forked by one that has made their imports already.

A test that starts such a process in each of its cases pays for the same imports each time: three seconds for
``datasets``. Here a process imports once for a module's tests, has no threads, and forks another for each call, which
gets the caller's arguments, environment, folder and files. What is read while Python starts is not read again: one
test of each module has to start it plainly.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 1 << 17
"""Of what a call says of itself; above all its environment."""
_SERVER = """
import importlib, json, os, runpy, socket, sys, traceback

asked = socket.socket(fileno=int(sys.argv[1]))
for name in sys.argv[3:]:
    importlib.import_module(name)
assert len(os.listdir("/proc/self/task")) == 1, "what has threads must not fork"
asked.send(b"ready")


def be(call, files):
    asked.close()
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    sys.argv = ["-m", *call["arguments"]]
    code = 0
    try:
        runpy.run_module(call["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


while True:
    said, files, _, _ = socket.recv_fds(asked, int(sys.argv[2]), 4)
    if not said:
        break
    if not os.fork():  # waits for the one that works, and passes its end on
        child = os.fork()
        if not child:
            os.close(files.pop())
            be(json.loads(said), files)
        os.write(files[3], b"%d\\n" % child)
        os.write(files[3], b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    for file in files:
        os.close(file)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


class Process:
    """One call under way; as much of ``subprocess.Popen`` as those need that are tested."""

    def __init__(self, end: IO[str], stdin: IO[str] | None, stdout: IO[str] | None) -> None:
        self._end, self.stdin, self.stdout = end, stdin, stdout
        self.pid = int(end.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: It still works.
        """
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self._end.readline())
            self._end.close()
        return self.returncode

    def kill(self) -> None:
        """End it."""
        if self.returncode is None and not select.select([self._end], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)


class Warm:
    """A process with imports; ``Popen`` and ``run`` are in the place of those of ``subprocess``."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked

    def Popen(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        text: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Begin a call of ``[sys.executable, "-m", module, *arguments]``."""
        python, option, module, *arguments = command
        assert (python, option) == (sys.executable, "-m"), command
        given: list[int] = []
        kept: list[IO[str] | None] = []
        pipes: list[int] = []
        for descriptor, file in enumerate((stdin, stdout, stderr)):
            if file != subprocess.PIPE:
                given.append(descriptor if file is None else file if isinstance(file, int) else file.fileno())
                kept.append(None)
                continue
            assert text, "its pipes carry text"
            far, near = os.pipe() if descriptor == 0 else os.pipe()[::-1]
            given.append(far)
            pipes.append(far)
            kept.append(os.fdopen(near, "r" if descriptor else "w"))
        end, told = os.pipe()
        call = {"module": module, "arguments": arguments, "folder": str(Path.cwd())}
        call["environment"] = dict(os.environ if env is None else env)
        socket.send_fds(self._asked, [json.dumps(call).encode()], [*given, told])
        for descriptor in (*pipes, told):
            os.close(descriptor)
        return Process(os.fdopen(end), kept[0], kept[1])

    def run(
        self,
        command: Sequence[str],
        *,
        capture_output: bool = True,
        text: bool = False,
        timeout: float | None = None,
        check: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[Any]:
        """Call, and return the exit code and what was printed."""
        assert capture_output and not check
        mode = "w+" if text else "w+b"
        with tempfile.TemporaryFile(mode) as out, tempfile.TemporaryFile(mode) as errors:
            with Path(os.devnull).open() as nothing:
                process = self.Popen(command, stdin=nothing.fileno(), stdout=out, stderr=errors, env=env)
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(list(command), code, out.read(), errors.read())


@contextmanager
def warm(*modules: str, env: Mapping[str, str] | None = None) -> Iterator[Warm]:
    """Let a process import modules, and call others in what it forks.

    Args:
        modules: What it imports; not what is called, which ``runpy`` warns of where it was imported.
        env: What its environment has beside that of this process: what modules read while they are imported.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", _SERVER, str(far.fileno()), str(MOST_BYTES), *modules]
    with (
        near,
        subprocess.Popen(command, pass_fds=[far.fileno()], env={**os.environ, **(env or {})}) as server,
    ):
        far.close()
        try:
            assert near.recv(16) == b"ready", "it could not import"
            yield Warm(near)
        finally:
            near.close()
            server.wait(60)
