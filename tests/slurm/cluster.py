"""A real Slurm of two nodes on this host, from Debian's packages, in a folder of its own; nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NODES = ("n0", "n1")
ANSWER_S = 150.0
"""For a daemon to answer: an idle machine takes a second, and one that stands still takes no test down."""
PORTS = range(20_000, 30_000)
"""Below those that Linux hands to clients (32768 and up): nobody is given one between its probe and its use."""


def free_port() -> int:
    """Return a port that nobody listens on, and that this process returns once."""
    for port in _candidates:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError(f"all ports of {PORTS} are taken")


_candidates = iter(random.Random(os.getpid()).sample(PORTS, len(PORTS)))
"""In an order of this process's own, so that another one tries others first."""


class Cluster:
    """munged, slurmctld and one slurmd a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self.ports = {node: free_port() for node in NODES}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons and wait until both nodes are idle."""
        self._munge()
        (self.folder / "slurm.conf").write_text(self._configuration())
        for name in ("state", "logs", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        self._run("slurmctld", "slurmctld", "-D", "-c")
        for node in NODES:
            self.start_node(node)
        self.wait_for(lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle", "idle"])

    def start_node(self, node: str) -> None:
        """Start one node's daemon."""
        self._run(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """Kill one node's daemon; what it started goes on."""
        self.processes.pop(node).kill()

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands."""
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)
        return done.stdout

    def queue(self) -> list[str]:
        """Return what is in the queue."""
        return self.ask("squeue", "-h", "-o", "%i %T").splitlines()

    def wait_for(self, condition: object, limit_s: float = ANSWER_S) -> None:
        """Poll until a condition holds."""
        assert callable(condition)
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"the cluster is not ready: {self.ask('sinfo', '-N', '-l')}\n{self.logs()}"
                )
            time.sleep(0.1)

    def logs(self) -> str:
        """Return the ends of what the daemons wrote."""
        return "".join(
            f"== {p.name}\n{p.read_text()[-3000:]}\n" for p in sorted((self.folder / "logs").glob("*"))
        )

    def stop(self) -> None:
        """End all daemons and everything that a task left behind."""
        with contextlib.suppress(FileNotFoundError):
            self.ask("scancel", "--me")
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def strays(self) -> dict[int, str]:
        """Return processes that carry this cluster's configuration in their environment, other than our own."""
        own = {os.getpid(), *(process.pid for process in self.processes.values())}
        mark = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if own.isdisjoint({int(path.name), parent}) and mark in (path / "environ").read_bytes().split(
                    b"\0"
                ):
                    found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        return found

    def _munge(self) -> None:
        """Start munged as its own user in this folder."""
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o400)
        shutil.chown(folder, "munge", "munge")
        shutil.chown(folder / "key", "munge", "munge")
        options = {
            "socket": "socket",
            "key-file": "key",
            "log-file": "log",
            "pid-file": "pid",
            "seed-file": "seed",
        }
        arguments = [f"--{name}={folder / file}" for name, file in options.items()]
        self.processes["munged"] = subprocess.Popen(
            [
                "setpriv",
                "--reuid=munge",
                "--regid=munge",
                "--clear-groups",
                "munged",
                "--foreground",
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.wait_for((folder / "socket").exists)

    def _run(self, name: str, *command: str) -> None:
        self.processes[name] = subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _configuration(self) -> str:
        cores = len(os.sched_getaffinity(0))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} State=UNKNOWN"
            for node, port in self.ports.items()
        )
        return f"""
ClusterName=tests
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/logs/slurmctld.log
SlurmdLogFile={self.folder}/logs/slurmd-%n.log
JobCompType=jobcomp/filetxt
JobCompLoc={self.folder}/logs/completions
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=100000
SlurmdTimeout=6
KillWait=2
InactiveLimit=0
BatchStartTimeout=5
SlurmdDebug=info
{nodes}
PartitionName=main Nodes=n0,n1 Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
"""
