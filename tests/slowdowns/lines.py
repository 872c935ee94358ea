"""Talks with a process of a check, line by line: each line that it is given it answers with one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent


class Talk:
    """A script of this folder in a process of its own, for the length of a ``with``.

    Args:
        script: Its name.
        arguments: For it.
        environment: Variables of it, beside those of this process.
    """

    def __init__(self, script: str, *arguments: object, **environment: str) -> None:
        self._command = [sys.executable, str(HERE / script), *map(str, arguments)]
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}

    def __enter__(self) -> Talk:
        """Start it."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it end; kill it where it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def read(self) -> str:
        """Return the next line that it says.

        Raises:
            RuntimeError: It has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[1]} has ended with {self._process.wait()}")
        return line.strip()

    def ask(self, line: str = "") -> str:
        """Give it a line, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()
