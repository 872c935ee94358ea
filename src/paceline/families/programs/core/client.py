"""A rank's end of the starter: what a program is started with, and what its run came to."""

from __future__ import annotations

import marshal
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.account import with_home
from paceline.base.files.job_folder import CALLED_FROM
from paceline.families.programs.api.program import SHELL
from paceline.worker.ranks.session import CaseError

SIGN_OF_LIFE_S = 1.0
LAST_WORDS = 200
"""Characters of what a program printed last that a failure's reason quotes."""
ADVICE_OF_TORCHRUN = "Setting OMP_NUM_THREADS environment variable for each process"
REPORT_OF_TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py:"
"""Stands in the first line that torchrun's agent prints once a rank has failed; what ranks print comes before it."""
DETAIL = 4000
"""Characters of its output that a failure keeps."""
OF_RANKS = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"),
        *("OMP_NUM_THREADS", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONDONTWRITEBYTECODE"),
    }
)
"""Variables that the harness sets for its own ranks: no program sees them."""
OF_THE_HARNESS = ("PACELINE_", "TORCHELASTIC_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How one run of a command ended."""

    wall_s: float
    start_ns: int
    code: int
    timed_out: bool
    cpu_s: float
    peak_bytes: int
    floor_bytes: int
    left: Sequence[str]
    output: str
    errors: str
    printed_bytes: int

    def last_words(self) -> str:
        """Quote what it printed last, its errors before its output."""
        lines = _own_words(self.errors) or _own_words(self.output)
        return f": {lines[-1][:LAST_WORDS]}" if lines else " and printed nothing"

    def detail(self) -> str:
        """Return the end of what it printed."""
        return f"standard error:\n{self.errors[-DETAIL:]}\nstandard output:\n{self.output[-DETAIL:]}"

    def how_ended(self) -> str:
        """Say how it ended, with what it printed last."""
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"exited with {self.code}"
        return f"{how}{self.last_words()}"


def _own_words(text: str) -> list[str]:
    """Return the lines that say something, without torchrun's report of the ranks that failed: it names no cause."""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    lines = [line for line in lines if not line.startswith(ADVICE_OF_TORCHRUN)]
    report = next((number for number, line in enumerate(lines) if REPORT_OF_TORCHRUN in line), len(lines))
    return lines[:report]


class Client:
    """Asks a starter to run commands; a starter that is gone is started anew.

    Args:
        alive: Called while a command runs, as a sign of life.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        limit_s: float,
        given: str | None = None,
    ) -> Ran:
        """Run a command to its end, or to its limit.

        Args:
            argv: The command; its first word is looked for on the environment's ``PATH`` unless it has a slash.
            environment: All of its variables.
            folder: Where it runs.
            limit_s: When it is killed.
            given: Its standard input; None for an empty one.

        Raises:
            CaseError: It cannot be started, or ended the process that starts it.
        """
        path = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environment.get("PATH", os.defpath))
        if path is None:
            raise CaseError("crashed", f"'{argv[0]}' was not found on PATH")
        request = {
            "argv": [path, *argv[1:]],
            "environment": dict(environment),
            "folder": str(folder),
            "limit_s": limit_s,
            "input": given,
        }
        answer = self._ask(request)
        if "failed" in answer:
            raise CaseError("crashed", f"cannot be started: {answer['failed']}")
        wall_s = answer.pop("wall_ns") * 1e-9
        return Ran(wall_s=wall_s, **answer)

    def close(self) -> None:
        """End the starter, and with it whatever still runs."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
            self._process.wait()
            self._process = None

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._process is None:
            starter = Path(__file__).with_name("starter.py")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(starter)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            data = marshal.dumps(dict(request))
            process.stdin.write(len(data).to_bytes(8, "little") + data)
            process.stdin.flush()
            while not select.select([process.stdout], [], [], SIGN_OF_LIFE_S)[0]:
                self._alive()
            size = process.stdout.read(8)
            data = process.stdout.read(int.from_bytes(size, "little"))
        except BrokenPipeError:
            size = data = b""
        if not data or len(data) < int.from_bytes(size, "little"):
            self._process = None
            process.kill()
            process.communicate()
            raise CaseError("crashed", "the process that starts commands was killed while it ran")
        answer: dict[str, Any] = marshal.loads(data)
        return answer


def environment_of(own: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a program: the rank's without those of the harness, then its own."""
    handed = {
        name: value
        for name, value in os.environ.items()
        if name not in OF_RANKS and not name.startswith(OF_THE_HARNESS)
    }
    paths = handed.pop("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if path and Path(path) != Path.cwd() / "engine"]
    return {**handed, **({"PYTHONPATH": os.pathsep.join(others)} if others else {}), **own}


def folder_of(folder: str) -> Path:
    """Return where a program runs: relative to the folder in which ``paceline`` was called, as far as that is known."""
    note = Path.cwd() / CALLED_FROM
    called_from = Path(note.read_text(encoding="utf-8")) if note.is_file() else Path.cwd()
    return (called_from / with_home(folder)).resolve()


def under_torchrun(argv: Sequence[str], ranks: int) -> list[str]:
    """Return the command that starts so many processes of a command, as torchrun does; the command itself for none."""
    if not ranks:
        return list(argv)
    script = [] if argv[0].endswith(".py") else ["--no-python"]
    number = f"--nproc-per-node={ranks}"
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", number, *script, *argv]


def shell_start_s(client: Client, environment: Mapping[str, str], folder: Path, times: int = 10) -> float:
    """Return the median time of a shell that does nothing."""
    one = [
        client.run([SHELL, "-c", ":"], environment=environment, folder=folder, limit_s=10.0).wall_s
        for _ in range(times)
    ]
    return sorted(one)[times // 2]
