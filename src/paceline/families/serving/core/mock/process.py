"""Starts and ends the mock server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from paceline.base.errors import InfrastructureError
from paceline.families.serving.core.load.sending.wire import response_parser
from paceline.families.serving.core.mock.behaviour import Behaviour


class MockServer:
    """A mock server in a process of its own, for the length of a ``with``.

    Args:
        behaviour: What it does.
        certificate: Files of a certificate and its key, for HTTPS.
        journal: File that gets a line for each request for tokens: the instant (``time.monotonic_ns``) at which it was
            read, and how many tokens it asks for.

    Raises:
        PrerequisiteError: httptools is not installed.
        InfrastructureError: It did not start.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        certificate: tuple[Path, Path] | None = None,
        journal: Path | None = None,
    ) -> None:
        self._behaviour, self._certificate, self._journal = behaviour or Behaviour(), certificate, journal
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Return the address below which ``/completions`` lies."""
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> MockServer:
        """Start it."""
        # Asked here, where it can be told; the process could only die.
        response_parser()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.families.serving.core.mock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        tls = None if self._certificate is None else [str(path) for path in self._certificate]
        journal = None if self._journal is None else str(self._journal)
        told = {"behaviour": self._behaviour.as_json(), "tls": tls, "journal": journal}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise InfrastructureError("the mock server did not start")
        self.port = json.loads(said)["port"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def kill(self) -> None:
        """Let it die at once."""
        if self._process is not None:
            self._process.kill()


def main() -> int:
    """Be the server: read what to do from standard input, print the port, serve until the parent has gone."""
    from paceline.families.serving.core.mock.server import serve  # noqa: PLC0415 - only here

    told = json.loads(sys.stdin.readline())
    tls = None if told["tls"] is None else (told["tls"][0], told["tls"][1])
    journal = None if told["journal"] is None else Path(told["journal"])
    asyncio.run(serve(Behaviour.from_json(told["behaviour"]), 0, tls, journal))
    return 0
