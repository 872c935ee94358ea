"""A process that others are forked from must not have asked any runtime for an accelerator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.base.errors import InfrastructureError
from paceline.families.kernels.core.timing_process import client
from paceline.worker.processes import process

FORKED_FROM = (
    "paceline.families.kernels.core.timing_process.server",
    "paceline.worker.ranks.rank",
    "paceline.worker.ranks.group",
)
ASKING = ("torch.utils.cpp_extension", "torch.utils.benchmark", "torch._inductor")
"""Modules that ask CUDA for its devices when they are imported."""


def test_what_is_imported_before_a_fork_asks_cuda_for_nothing() -> None:
    """Neither by one module nor by the other: one process imports both."""
    source = f"import sys, {', '.join(FORKED_FROM)}\nprint(*(m for m in {ASKING!r} if m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


@pytest.mark.parametrize("device", ["/dev/nvidia-uvm", "/dev/kfd", "/dev/davinci0"])
def test_a_fork_is_refused_where_a_device_is_open(tmp_path: Path, device: str) -> None:
    (tmp_path / "0").symlink_to("/dev/null")
    (tmp_path / "7").symlink_to(device)
    with pytest.raises(InfrastructureError, match=device):
        process.require_untouched_accelerators(tmp_path)


def test_looking_at_devices_is_no_use_of_one(tmp_path: Path) -> None:
    for number, path in enumerate(("/dev/nvidiactl", "/dev/nvidia0", "/dev/null", "socket:[1]")):
        (tmp_path / str(number)).symlink_to(path)
    process.require_untouched_accelerators(tmp_path)


def test_this_process_has_opened_none() -> None:
    process.require_untouched_accelerators()


def test_how_a_timing_process_died_is_told(tmp_path: Path) -> None:
    log = tmp_path / "cell.log"
    log.write_text(
        "Traceback (most recent call last):\n  File …\nRuntimeError: CUDA error: initialization error\n"
    )
    dead = client.TimingProcess.__new__(client.TimingProcess)
    dead._log = log
    status, reason, detail = dead._obituary(1, "load")
    assert status == "crashed"
    assert reason.endswith("exit code 1 at 'load': RuntimeError: CUDA error: initialization error")
    assert detail is not None
    assert detail.startswith("Traceback")


def test_an_exception_at_the_start_of_a_timing_process_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "cell.log"
    source = (
        "import os, sys\n"
        "from paceline.families.kernels.core.timing_process import fork_server\n"
        "def serve(channel, message):\n    raise RuntimeError('no device')\n"
        "class Closed:\n    def close(self): pass\n"
        "import socket\n"
        "ours, theirs = socket.socketpair()\n"
        f"message = {{'log': {str(log)!r}, 'memory': None}}\n"
        "fork_server._become(serve, message, [theirs.detach()], Closed(), os.getppid())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", source], env={**os.environ}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert log.read_text().strip().endswith("RuntimeError: no device")
