"""The reference engine's process, as the judging side starts, asks and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.worker.ranks.session import CaseError

START_S = 120.0
END_S = 5.0
MODULE = "paceline.families.serving.core.engine"


class EngineProcess:
    """An engine that a technique schedules, for the length of a ``with``.

    Args:
        technique: The technique's module, its name and its options.
        model: Of the engine: layers, hidden, heads, kv_heads, vocab, max_context, seed, dtype.
        engine: Of the engine: block_size, num_blocks, max_batch, token_budget.
        log: File for what it writes.
    """

    def __init__(
        self,
        technique: tuple[str, str, Mapping[str, Any]],
        *,
        model: Mapping[str, Any],
        engine: Mapping[str, Any],
        device: str,
        log: Path,
    ) -> None:
        module, name, options = technique
        self._command = [
            *(sys.executable, "-m", MODULE),
            *("--technique-module", module, "--technique", name, "--options", json.dumps(dict(options))),
            *("--model", json.dumps(dict(model)), "--engine", json.dumps(dict(engine))),
            *("--device", device, "--port", "0"),
        ]
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Return the address below which ``/completions`` lies."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> EngineProcess:
        """Start it and wait until it answers.

        Raises:
            CaseError: It did not start; the status says whose fault that is.
        """
        with self._log.open("w", encoding="utf-8") as said:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        try:
            said = json.loads(self._first_line())
            if "port" not in said:
                raise CaseError(said["status"], said["reason"], said["detail"])
            self.port = int(said["port"])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._end()

    def counters(self) -> dict[str, float]:
        """Return what the engine has counted since it began.

        Raises:
            CaseError: It does not answer any more.
        """
        return {name: float(value) for name, value in self._get("/paceline/counters").items()}

    def hold(self, number: int) -> None:
        """Let the engine wait until so many requests are there.

        Raises:
            CaseError: It does not answer any more.
        """
        self._get(f"/paceline/hold/{number}")

    def check(self) -> None:
        """See whether it served until now.

        Raises:
            CaseError: It stopped: the technique was refused, or failed.
        """
        failed = self._get("/paceline/failure")
        if failed["reason"] is not None:
            reason, _, detail = str(failed["reason"]).partition("\n")
            raise CaseError(str(failed["kind"]), reason, detail or None)

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return dict(json.load(answer))
        except OSError as error:
            raise CaseError("crashed", f"the engine does not answer: {error}", self.last_words()) from error

    def last_words(self) -> str:
        """Return the end of what it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if select.select([self._process.stdout], [], [], 0.2)[0]:
                line = self._process.stdout.readline()
                if line:
                    return line
                break
        code = self._process.poll()
        why = "did not start in time" if code is None else f"ended with {code} before it served"
        raise CaseError("crashed", f"the engine {why}", self.last_words())

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
