"""Says what a sandbox sees, as bubblewrap's command line, and which kind can be had here; free of torch.

What a program may see is listed, everything else is not there. Started by root, it changes to a user that owns nothing
(``inside``) before it runs what nobody has reviewed. Started by anybody else, it lives in a user namespace: no right of
the caller's reaches beyond the sandbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.worker.sandbox import seccomp, starts

BUBBLEWRAP, USER_NAMESPACES, UNISOLATED = "bubblewrap", "user-namespaces", "unisolated"
NOBODY = 65534
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache")
PROCESSORS = "/sys/devices/system/cpu"
"""Where libraries look for the number of cores."""
TMP_BYTES, SHM_BYTES = 256 << 20, 64 << 20
ASKS = "/opt/starts.py"
"""What is tried, where it is seen in the sandbox."""
START_S = 60.0
"""A program that does nothing starts within this time on any machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """What a sandbox sees beside the system: places here, and where they are there; all of it can only be read."""

    folders: Mapping[str, str]
    environment: Mapping[str, str]
    working_folder: str


def command(kind: str, mounted: Mounted, *, info: int, filter_: int | None) -> list[str]:
    """Return the command line before the program.

    Args:
        kind: ``bubblewrap``, by root, or ``user-namespaces``.
        mounted: What is seen there.
        info: Descriptor to which the first process's number is written.
        filter_: Descriptor of the seccomp filter.
    """
    words = [
        "bwrap",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    words += ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    if kind == BUBBLEWRAP:
        # Only what changing to another user needs; the change takes both away.
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        # The program is the sandbox's first process: another one there would be of the same user, without a filter.
        words += ["--cap-drop", "ALL", "--as-pid-1"]
    words += _above([PROCESSORS])
    words += ["--proc", "/proc", "--dev", "/dev", "--ro-bind-try", PROCESSORS, PROCESSORS]
    # Mapped and shared it is memory that no limit of a process counts; so bound it cannot be opened.
    words += ["--ro-bind", "/dev/null", "/dev/zero"]
    # Everybody's, as on any system: the program may become another user.
    words += ["--perms", "1777", "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm"]
    words += ["--perms", "1777", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
    # After /tmp, in which an interpreter may be installed.
    words += [*_system(), *_above(mounted.folders.values())]
    for here, there in mounted.folders.items():
        words += ["--ro-bind", here, there]
    for name, value in mounted.environment.items():
        words += ["--setenv", name, value]
    # Nobody there sets the kernel's figures of a process, such as its peak of memory, or fills the folder of devices.
    words += ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    words += ["--chdir", mounted.working_folder, "--remount-ro", "/", "--info-fd", str(info)]
    return [*words, *(["--seccomp", str(filter_)] if filter_ is not None else [])]


def _system() -> list[str]:
    """Return the arguments for what every program needs: libraries, and the interpreter with its packages."""
    words: list[str] = []
    for place in SYSTEM:
        path = Path(place)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), place]
        elif path.exists():
            words += ["--ro-bind", place, place]
    seen = [p for p in SYSTEM if not Path(p).is_symlink()]
    found = [
        sys.base_prefix,
        sys.prefix,
        *(p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")),
    ]
    for place in dict.fromkeys(str(Path(p).absolute()) for p in found):
        if not any(Path(place).is_relative_to(s) for s in seen):
            words += [*_above([place]), "--ro-bind", place, place]
            seen.append(place)
    return words


def _above(places: Iterable[str]) -> list[str]:
    """Return arguments for the folders above mounted places; those that bubblewrap makes itself are root's alone."""
    folders = dict.fromkeys(
        str(p) for place in places for p in reversed(Path(place).parents) if p != Path("/")
    )
    return [word for folder in folders for word in ("--perms", "0755", "--dir", folder)]


@cache
def available(wanted: str = "auto") -> tuple[str, str]:
    """Return which isolation can be had here, tried and not guessed, and why none; computed once.

    Args:
        wanted: A kind, or ``auto`` for the strongest.
    """
    if wanted == UNISOLATED:
        return UNISOLATED, "the runner profile says so"
    if not sys.platform.startswith("linux") or shutil.which("bwrap") is None:
        return UNISOLATED, "bubblewrap is not installed: apt-get install bubblewrap"
    if seccomp.program(os.uname().machine) is None:
        return UNISOLATED, f"there is no seccomp filter for {os.uname().machine}"
    kinds = [k for k in (BUBBLEWRAP, USER_NAMESPACES) if wanted in ("auto", k)]
    reason = ""
    for kind in kinds:
        if kind == BUBBLEWRAP and os.geteuid() != 0:
            reason = "another user can be had by root alone"
            continue
        failed = _tried(kind)
        if failed is None:
            return kind, ""
        reason = failed
    return UNISOLATED, reason


def _tried(kind: str) -> str | None:
    """Start an interpreter that asks before it starts processes; return why that failed, or None."""
    null = os.open(os.devnull, os.O_WRONLY)
    filter_ = seccomp.descriptor()
    mounted = Mounted(folders={starts.__file__: ASKS}, environment={}, working_folder="/")
    words = [*command(kind, mounted, info=null, filter_=filter_), sys.executable, "-I", "-S", ASKS]
    try:
        found = subprocess.run(
            words,
            pass_fds=[d for d in (null, filter_) if d is not None],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot start: {error}"
    finally:
        for opened in (null, filter_):
            if opened is not None:
                os.close(opened)
    return (
        None
        if found.returncode == 0
        else (found.stderr.strip().rpartition("\n")[2] or f"bubblewrap: exit code {found.returncode}")
    )
