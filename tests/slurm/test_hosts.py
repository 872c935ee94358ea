"""Ranks on several hosts without a scheduler, joined over a real ssh to this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import paceline_commands
import pytest
import yaml
from cluster import free_port
from slurm_runs import lines_of

pytestmark = pytest.mark.slurm
FAULTY = Path(__file__).parents[1] / "distributed" / "faulty"
"""Techniques that fail on rank 1."""


def reaches(port: int) -> bool:
    """Tell whether somebody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def ssh() -> Iterator[list[str]]:
    """Start an ssh server for this user on a port of its own; return the command that reaches it under any name."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if os.getuid() or server is None or shutil.which("ssh") is None:
        pytest.skip("needs root, ssh and sshd: apt-get install openssh-server")
    folder = Path(tempfile.mkdtemp(prefix="paceline-ssh-"))
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = free_port()
    (folder / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    (folder / "ssh.conf").write_text(
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user\n"
        f"  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  BatchMode yes\n"
    )
    made_folder = not Path("/run/sshd").exists()
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [server, "-D", "-e", "-f", str(folder / "sshd.conf")],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not reaches(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield ["ssh", "-F", str(folder / "ssh.conf"), "{host}"]
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)
        if made_folder:
            Path("/run/sshd").rmdir()


def test_hosts_measure_together_over_ssh_and_a_rank_that_dies_is_named_by_its_own_host(
    ssh: list[str], tmp_path: Path
) -> None:
    profile = {
        "runner": "three-hosts",
        "why": "Three hosts that are all this machine.",
        "driver": "hosts",
        "backend": "gloo",
        "max_ranks": 3,
        "hosts": {"names": ["node-a", "node-b", "node-c"], "connect": ssh},
    }
    path = tmp_path / "three-hosts.yaml"
    path.write_text(yaml.safe_dump(profile))
    command = paceline_commands.command(
        *("run", "collectives/faulty", "--techniques", "kills-itself"),
        *("--runner", path, "--results", tmp_path / "results"),
    )
    environment = {**os.environ, "PACELINE_CONTENT": str(FAULTY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    measured = [m for m in lines_of(tmp_path / "results") if m["line"] == "measurement"]
    assert {(m["scale"]["nodes"], m["scale"]["ranks"]) for m in measured} == {(3, 3)}
    assert {m["status"] for m in measured if m["label"] == "native"} == {"ok"}
    (died,) = [m for m in measured if m["label"] == "kills-itself"]
    assert died["status"] == "crashed"
    assert died["reason"].startswith("rank 1 was killed by signal 9 (SIGKILL); last operation: ")
    assert sorted(report["rank"] for report in died["detail"]) == [0, 1, 2]
