"""The seccomp filter of a sandbox: a small program of the kernel's packet filter, made by hand.

Everything is allowed but what reaches other processes, changes mounts, clocks, schedulers or keys, opens a way out of
the namespaces, or offers the kernel's largest interfaces (bpf, perf, io_uring). So is what would let the kernel send a
signal of the caller's choice later (SIGCONT would continue who was stopped), and memory that no limit of a process
counts. A refused call fails with EPERM, so that a library which only asks goes on. Source: ``seccomp(2)`` and
``linux/filter.h``.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from collections.abc import Mapping

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in ``struct seccomp_data``; of an argument the lower half, both machines being little-endian."""
_X32 = 0x40000000
"""Numbers of calls of the x32 interface, which would go round a filter by numbers."""
NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEW* of ``clone``: mounts, cgroups, host name, ipc, users, processes and network."""

ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_* of ``linux/audit.h``."""

_SAME_EVERYWHERE = {
    **{"pidfd_open": 434, "pidfd_getfd": 438, "process_madvise": 440, "pidfd_send_signal": 424},
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
    **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433},
    **{"mount_setattr": 442, "memfd_secret": 447, "process_mrelease": 448},
}
REFUSED: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312},
        **{"perf_event_open": 298, "bpf": 321, "userfaultfd": 323},
        **{"keyctl": 250, "add_key": 248, "request_key": 249},
        **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308},
        **{"settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159},
        **{"sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314},
        **{"sched_setaffinity": 203, "setpriority": 141, "ioprio_set": 251},
        **{"socket": 41, "open_by_handle_at": 304, "name_to_handle_at": 303},
        **{"init_module": 175, "finit_module": 313, "delete_module": 176},
        **{"kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168},
        **{"timer_create": 222, "mq_notify": 244, "memfd_create": 319},
        **{"shmget": 29, "semget": 64, "msgget": 68, "io_setup": 206, "fanotify_init": 300},
        **{"syslog": 103, "acct": 163, "quotactl": 179, "personality": 135, "iopl": 172, "ioperm": 173},
        **_SAME_EVERYWHERE,
    },
    "aarch64": {
        **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272},
        **{"perf_event_open": 241, "bpf": 280, "userfaultfd": 282},
        **{"keyctl": 219, "add_key": 217, "request_key": 218},
        **{"mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268},
        **{"settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171},
        **{"sched_setscheduler": 119, "sched_setparam": 118, "sched_setattr": 274},
        **{"sched_setaffinity": 122, "setpriority": 140, "ioprio_set": 30},
        **{"socket": 198, "open_by_handle_at": 265, "name_to_handle_at": 264},
        **{"init_module": 105, "finit_module": 273, "delete_module": 106},
        **{"kexec_load": 104, "kexec_file_load": 294, "reboot": 142, "swapon": 224, "swapoff": 225},
        **{"timer_create": 107, "mq_notify": 184, "memfd_create": 279},
        **{"shmget": 194, "semget": 190, "msgget": 186, "io_setup": 0, "fanotify_init": 262},
        **{"syslog": 116, "acct": 89, "quotactl": 60, "personality": 92},
        **_SAME_EVERYWHERE,
    },
}
"""Calls that fail, with their numbers on each machine (``asm/unistd.h``)."""
_CLONE: Mapping[str, int] = {"x86_64": 56, "aarch64": 220}
_FCNTL: Mapping[str, int] = {"x86_64": 72, "aarch64": 25}
_MMAP: Mapping[str, int] = {"x86_64": 9, "aarch64": 222}
SET_SIGNAL = 10
"""``F_SETSIG``: which signal tells that a file is ready."""
SHARED_ANONYMOUS, GROWS_DOWN = 0x21, 0x100
"""Flags of ``mmap``: memory of no file that is shared, and stacks; both are no data of a process (``RLIMIT_DATA``)."""
_CLONE3 = 435


def program(machine: str) -> bytes | None:
    """Return the filter's instructions (``struct sock_filter`` each) for a machine; None for one without a table.

    Args:
        machine: As ``platform.machine`` names it.
    """
    if machine not in ARCHITECTURES:
        return None
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, ARCHITECTURES[machine], yes=1),
        # Another interface of the same kernel has other numbers: nothing honest changes it while it runs.
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_instruction(_AT_LEAST, _X32, no=1), refuse]
    for number in sorted(set(REFUSED[machine].values())):
        code += [_instruction(_EQUAL, number, no=1), refuse]
    # Its flags lie behind a pointer, which a filter cannot follow; the C library then takes ``clone``.
    code += [_instruction(_EQUAL, _CLONE3, no=1), _instruction(_RETURN, _ERRNO | errno.ENOSYS)]
    allow = _instruction(_RETURN, _ALLOW)
    code += [
        _instruction(_EQUAL, _CLONE[machine], no=4),
        _argument(0),
        _instruction(_ANY_BIT, NAMESPACE_FLAGS, no=1),
        refuse,
        allow,
        _instruction(_EQUAL, _FCNTL[machine], no=4),
        _argument(1),
        _instruction(_EQUAL, SET_SIGNAL, no=1),
        refuse,
        allow,
        _instruction(_EQUAL, _MMAP[machine], no=5),
        _argument(3),
        _instruction(_ANY_BIT, GROWS_DOWN, yes=2),
        _instruction(_AND, SHARED_ANONYMOUS),
        _instruction(_EQUAL, SHARED_ANONYMOUS, no=1),
        refuse,
        allow,
    ]
    return b"".join(code)


def _argument(number: int) -> bytes:
    """Return the instruction that loads an argument."""
    return _instruction(_LOAD, _ARGUMENTS + 8 * number)


def _instruction(code: int, operand: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; ``yes`` and ``no`` are the instructions that a comparison skips."""
    return struct.pack("=HBBI", code, yes, no, operand)


def descriptor() -> int | None:
    """Return an open file that holds this machine's filter, to be read once; None on a machine without a table."""
    code = program(platform.machine())
    if code is None:
        return None
    found = os.memfd_create("paceline-seccomp")
    os.write(found, code)
    os.lseek(found, 0, os.SEEK_SET)
    return found
