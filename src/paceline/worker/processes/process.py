"""What a rank does to its own process before torch is imported."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from paceline.base.account import user_name
from paceline.base.errors import InfrastructureError
from paceline.worker.machine.host import allowed_environment

SYSTEM_VARIABLES = (
    "CC",
    "CPATH",
    "CUDAHOSTCXX",
    "CURL_CA_BUNDLE",
    "CXX",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "PATH",
    "PYTHON",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "TMPDIR",
    "USER",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
)
"""Variables that programs need to start; they do not enter a record unless they are allow-listed there."""

SOURCE_SECRETS = ("HF_TOKEN", "OPENAI_API_KEY", "OPENAI_API_KEY_2")
"""Keys to sources of models and data, which ranks take out of their environment before any technique is imported."""

ACCELERATOR_FILES = ("/dev/nvidia-uvm", "/dev/kfd", "/dev/davinci")
"""What the runtimes of NVIDIA, AMD and Ascend open when they are first asked for a device; a look opens none."""

ENDING_S, POLL_S = 5.0, 0.002
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent dies, so that no rank outlives its launcher.

    Args:
        parent: Number of the process that has to be the parent; None: whichever is. One that died before this call is
            found by it alone.
    """
    parent = os.getppid() if parent is None else parent
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_children(limit_s: float = ENDING_S) -> None:
    """Kill what this process has started, and wait for it: its processor time counts with this process then.

    What nobody waits for is adopted by the first process of the machine, and what it took looks like others' work.

    Args:
        limit_s: How long they are waited for; a driver may keep one that was killed.
    """
    left = _children()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + limit_s
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if _is_running(pid)]
        if left:
            time.sleep(POLL_S)


def _children() -> list[int]:
    """Return the children of all threads of this process; none where the kernel does not tell."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, path.read_text().split())
    return found


def _is_running(pid: int) -> bool:
    """Tell whether a child runs, and collect it where it does not."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:  # whoever started it has waited for it
        return False


def let_fork_server_end() -> None:
    """Close this rank's end of the pipe by which the server knows that somebody needs it.

    Otherwise a rank would keep the server of a killed launcher, and itself with it: a rank ends with its server.
    """
    ours: Any = forkserver._forkserver
    if ours._forkserver_alive_fd is not None:
        os.close(ours._forkserver_alive_fd)
        ours._forkserver_alive_fd = None


def seed_generators() -> None:
    """Seed the generators of numpy and torch from the system in a process that was forked, as a new interpreter does.

    What they have is a copy of the other process's, and equal in all of its forks; Python's own is seeded by the fork.
    """
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def set_name(name: str) -> None:
    """Name this process for lists of processes, where a forked one would look like its server.

    Args:
        name: At most 15 bytes.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def scrub_environment() -> None:
    """Remove every variable that neither system nor measurement needs, so that no technique can tell a secret.

    A user without an entry in the password file gets a name: torch asks for one where it compiles, and fails without.
    """
    os.environ.setdefault("USER", user_name())
    kept = kept_variables(os.environ)
    for name in list(os.environ):
        if name not in kept and name not in SOURCE_SECRETS:
            del os.environ[name]


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what programs get that a rank starts: what system and measurement need, without keys."""
    allowed = allowed_environment(dict(environment))
    return {n: value for n, value in environment.items() if n in allowed or n in SYSTEM_VARIABLES}


def take_secrets() -> dict[str, str]:
    """Take the keys to sources out of the environment."""
    return {name: os.environ.pop(name) for name in SOURCE_SECRETS if name in os.environ}


def redirect_output(path: Path) -> None:
    """Send everything that this process prints, from Python or from libraries, to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def require_untouched_accelerators(descriptors: Path = Path("/proc/self/fd")) -> None:
    """Make sure that this process has not asked a runtime for an accelerator: what it forks could then use none.

    An import can be enough: ``torch.utils.cpp_extension`` asks CUDA for its devices. A spawned process has none open
    either.

    Raises:
        InfrastructureError: A device file is open.
    """
    for entry in list(descriptors.iterdir()):
        try:
            target = str(entry.readlink())
        except OSError:  # the folder's own descriptor is closed again
            continue
        if target.startswith(ACCELERATOR_FILES):
            raise InfrastructureError(
                f"{target} is open in a process that others are forked from, which could use no accelerator: import "
                "what opened it after the fork, or say start: spawned in the runner profile"
            )


def limit_memory(limit: str | None) -> None:
    """Bound the data that this process may allocate, so that one case's greed becomes its own failure."""
    if limit:
        size = int(limit)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        return


def set_scheduling(policy: str) -> None:
    """Choose how Linux schedules this process, and all threads and processes that it starts.

    ``batch`` means that a thread which wakes up does not preempt another. Gloo's thread tries its connection's lock
    again and again while the rank's thread holds it; where it has preempted that thread, it does so until the next tick
    of the scheduler, 4 ms at 250 Hz.

    Args:
        policy: ``batch`` or ``normal``, which changes nothing.

    Raises:
        InfrastructureError: The kernel has no such policy, or refuses it.
    """
    if policy == "normal":
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError) as error:
        raise InfrastructureError(
            f"ranks cannot be scheduled as 'batch': {error}\n  fix: 'scheduling: normal' in the runner profile"
        ) from error


def dump_stacks_on_signal(path: Path) -> None:
    """Write all threads' stacks to a file on SIGUSR1, for hang reports, and on a crash."""
    file = path.open("w")
    faulthandler.enable(file=file)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
