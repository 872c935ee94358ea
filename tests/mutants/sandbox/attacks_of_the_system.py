"""A program that tries to leave its sandbox, kind by kind, and tells its judge how each attempt ended.

Run as ``python attacks_of_the_system.py FD``; the first message names what to look for. It needs no torch.
"""

# ruff: noqa: PTH208 - what is tried is the system call
from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

DEVICES = ("sd", "vd", "nvme", "kvm", "nvidia")
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
NUMBERS = {
    "x86_64": {
        **{
            "ptrace": 101,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "perf_event_open": 298,
            "bpf": 321,
        },
        **{"keyctl": 250, "add_key": 248, "userfaultfd": 323, "unshare": 272, "setns": 308, "clone": 56},
        **{"open_by_handle_at": 304, "kexec_load": 246, "init_module": 175, "settimeofday": 164},
        **{"sched_setattr": 314, "ioprio_set": 251, "personality": 135, "pivot_root": 155},
        **{"timer_create": 222, "mq_notify": 244, "shmget": 29, "fcntl": 72, "mmap": 9},
        **{"semget": 64, "msgget": 68, "io_setup": 206},
    },
    "aarch64": {
        **{
            "ptrace": 117,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "perf_event_open": 241,
            "bpf": 280,
        },
        **{"keyctl": 219, "add_key": 217, "userfaultfd": 282, "unshare": 97, "setns": 268, "clone": 220},
        **{"open_by_handle_at": 265, "kexec_load": 104, "init_module": 105, "settimeofday": 170},
        **{"sched_setattr": 274, "ioprio_set": 30, "personality": 92, "pivot_root": 41},
        **{"timer_create": 107, "mq_notify": 184, "shmget": 194, "fcntl": 25, "mmap": 222},
        **{"semget": 190, "msgget": 186, "io_setup": 0},
    },
}[os.uname().machine]
PRIVATE, SHARED, ANONYMOUS, GROWS_DOWN = 2, 1, 0x20, 0x100
SHARED_VALIDATE = 3
SAME = {"io_uring_setup": 425, "fsopen": 430, "pidfd_open": 434, "pidfd_getfd": 438, "clone3": 435}


def call(name: str, *arguments: int) -> int:
    """Make a system call past the C library's own functions."""
    found = LIBC.syscall(ctypes.c_long(NUMBERS.get(name, SAME.get(name))), *map(ctypes.c_long, arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(found)


def fill(folder: str) -> str:
    """Write files until nothing more fits; return the MiB."""
    place = Path(folder) / "fill"
    place.mkdir()
    written = 0
    try:
        for number in range(64):
            with (place / str(number)).open("wb", buffering=0) as file:
                for _ in range(50):
                    written += file.write(b"\0" * (1 << 20))
    except OSError as error:
        return f"{errno.errorcode[error.errno or 0]} after {written >> 20} MiB"
    finally:
        for file_ in place.iterdir():
            file_.unlink()
    return f"{written >> 20} MiB"


def write_sealed(how: str, descriptor: int) -> str:
    """Try to change memory that was given to be read."""
    if how == "write":
        os.pwrite(descriptor, b"x", 0)
    elif how == "map":
        mmap.mmap(descriptor, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    elif how == "reopen":
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        os.pwrite(again, b"x", 0)
    elif how == "shrink":
        os.ftruncate(descriptor, 0)
    else:
        mapped = mmap.mmap(descriptor, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        address = ctypes.c_void_p()
        buffer = (ctypes.c_char * 1).from_buffer_copy(mapped[:1])
        del buffer
        LIBC.mmap.restype = ctypes.c_void_p
        address = LIBC.mmap(
            None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(0)
        )
        if how == "memory-file":
            with Path("/proc/self/mem").open("r+b", buffering=0) as file:
                file.seek(address)
                file.write(b"x")
        elif LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(4096), 3) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    return "changed"


def take(flags: int, descriptor: int = -1) -> str:
    """Map memory of a kind, which can be written."""
    size = 1 << 20
    address = call("mmap", 0, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    return "taken" if address else "none"


def take_of_a_device() -> str:
    """Map zeros of a device, which is memory of nobody's."""
    return take(SHARED, os.open("/dev/zero", os.O_RDWR))


def continue_by_timer() -> int:
    """Let a timer continue this process when it is stopped."""
    event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
    return call("timer_create", 1, ctypes.addressof(event), ctypes.addressof((ctypes.c_int * 2)()))


def write_to(place: str, text: str) -> str:
    """Write to a file, and say so."""
    Path(place).write_text(text)
    return "written"


def raise_limit() -> str:
    """Ask for more processes than allowed."""
    resource.setrlimit(resource.RLIMIT_NPROC, (1 << 20, 1 << 20))
    return "raised"


def many_threads() -> str:
    """Start threads until refused."""
    event, started = threading.Event(), []
    try:
        for _ in range(4096):
            started.append(threading.Thread(target=event.wait, daemon=True))
            started[-1].start()
    except RuntimeError:
        return f"refused after {len(started) // 100 * 100} or more"
    finally:
        event.set()
    return "started 4096"


def attempts(told: dict[str, str], sealed: int) -> dict[str, Callable[[], object]]:
    """Return every attempt by its kind and name."""
    host_pid = int(told["pid"])
    return {
        "files/job": lambda: os.listdir(told["job"]),
        "files/store": lambda: Path(told["store"]).read_text(),
        "files/home": lambda: os.listdir(told["home"]),
        "files/system": lambda: Path("/usr/lib/mark").write_text("x"),
        "files/root": lambda: Path("/mark").write_text("x"),
        "files/own-source": lambda: Path(told["source"]).write_text("x"),
        "files/tmp-is-private": lambda: Path(told["tmp"]).read_text(),
        "files/log-is-none": lambda: [stat.S_ISREG(os.fstat(number).st_mode) for number in (0, 1, 2)],
        "files/handle": lambda: call("open_by_handle_at", -100, 0, 0),
        "shm/is-private": lambda: Path("/dev/shm", told["shm"]).read_text(),
        "shm/system-v": lambda: "found" if LIBC.shmget(int(told["key"]), 4096, 0) >= 0 else "none",
        "bounds/tmp": lambda: fill("/tmp"),
        "bounds/shm": lambda: fill("/dev/shm"),
        "bounds/limit": raise_limit,
        "bounds/threads": many_threads,
        "bounds/devices": lambda: write_to("/dev/fill", "x"),
        "bounds/unnamed-memory": lambda: os.memfd_create("own"),
        "bounds/shared-memory": lambda: take(SHARED | ANONYMOUS),
        "bounds/shared-memory-by-another-name": lambda: take(SHARED_VALIDATE | ANONYMOUS),
        "bounds/memory-of-a-device": take_of_a_device,
        "bounds/memory-as-a-stack": lambda: take(PRIVATE | ANONYMOUS | GROWS_DOWN),
        "bounds/own-memory": lambda: take(PRIVATE | ANONYMOUS),
        "bounds/system-v-memory": lambda: call("shmget", 0, 1 << 20, 0o1600),
        "bounds/system-v-semaphores": lambda: call("semget", 0, 32000, 0o1600),
        "bounds/system-v-messages": lambda: call("msgget", 0, 0o1600),
        "bounds/kernel-queues": lambda: call("io_setup", 65536, 0),
        "wakes/by-a-timer": continue_by_timer,
        "wakes/by-a-descriptor": lambda: call("fcntl", 0, 10, signal.SIGCONT),
        "wakes/by-a-queue": lambda: call("mq_notify", 0, 0),
        "sockets/internet": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "sockets/unix": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "sockets/netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "sockets/no-network": lambda: sorted(set(os.listdir("/sys/class/net")) - {"lo"}),
        "proc/peers": lambda: Path(f"/proc/{host_pid}/environ").read_bytes(),
        "proc/number-of-processes": lambda: sum(name.isdigit() for name in os.listdir("/proc")) <= 4,
        "proc/memory-of-the-first": lambda: os.open("/proc/1/mem", os.O_RDWR),
        "proc/kernel-settings": lambda: Path("/proc/sys/kernel/hostname").write_text("x"),
        "proc/peak-of-memory": lambda: write_to("/proc/self/clear_refs", "5"),
        "proc/spared-by-the-kernel": lambda: write_to("/proc/self/oom_score_adj", "0"),
        "proc/goes-first": lambda: Path("/proc/self/oom_score_adj").read_text().strip(),
        "ptrace/attach": lambda: call("ptrace", 16, 1, 0, 0),
        "ptrace/read": lambda: call("process_vm_readv", 1, 0, 0, 0, 0, 0),
        "ptrace/write": lambda: call("process_vm_writev", 1, 0, 0, 0, 0, 0),
        "ptrace/descriptors": lambda: call("pidfd_getfd", 3, 3, 0),
        "signals/judge": lambda: os.kill(host_pid, signal.SIGKILL),
        "clocks/set": lambda: os.system("date -s 2001-01-01 2>/dev/null") or "set",
        "clocks/settimeofday": lambda: call("settimeofday", 0, 0),
        "scheduler/real-time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "scheduler/batch": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        "scheduler/processors": lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)),
        "scheduler/nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
        "scheduler/attributes": lambda: call("sched_setattr", 0, 0, 0),
        "kernel/bpf": lambda: call("bpf", 0, 0, 0),
        "kernel/perf": lambda: call("perf_event_open", 0, 0, -1, -1, 0),
        "kernel/keys": lambda: call("keyctl", 0, -3, 1),
        "kernel/io_uring": lambda: call("io_uring_setup", 1, 0),
        "kernel/userfaultfd": lambda: call("userfaultfd", 0),
        "kernel/modules": lambda: call("init_module", 0, 0, 0),
        "kernel/kexec": lambda: call("kexec_load", 0, 0, 0, 0),
        "namespaces/user": lambda: call("unshare", 0x10000000),
        "namespaces/clone": lambda: call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0),
        "namespaces/clone3": lambda: call("clone3", 0, 0),
        "namespaces/join": lambda: call("setns", 0, 0),
        "mounts/mount": lambda: call("fsopen", 0, 0),
        "mounts/root": lambda: call("pivot_root", 0, 0),
        "privileges/user": lambda: os.setuid(0),
        "privileges/set-user-id": lambda: "NoNewPrivs:\t1" in Path("/proc/self/status").read_text(),
        "privileges/capabilities": lambda: (
            "CapEff:\t0000000000000000" in Path("/proc/self/status").read_text()
        ),
        "privileges/bounding-set": lambda: (
            "CapPrm:\t0000000000000000" in Path("/proc/self/status").read_text()
        ),
        "environment/secret": lambda: os.environ["PACELINE_TEST_SECRET"],
        "environment/preload": lambda: os.environ["LD_PRELOAD"],
        "devices/memory": lambda: os.open("/dev/mem", os.O_RDONLY),
        "devices/disk": lambda: [n for n in os.listdir("/dev") if n.startswith(DEVICES)],
        "memory/write": lambda: write_sealed("write", sealed),
        "memory/map": lambda: write_sealed("map", sealed),
        "memory/reopen": lambda: write_sealed("reopen", sealed),
        "memory/shrink": lambda: write_sealed("shrink", sealed),
        "memory/protect": lambda: write_sealed("protect", sealed),
        "memory/file-of-own-memory": lambda: write_sealed("memory-file", sealed),
    }


def tried(attempt: Callable[[], object]) -> str:
    """Return how an attempt ended, in a word."""
    try:
        return str(attempt())
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except BaseException as error:
        return type(error).__name__


def main(descriptor: int) -> None:
    from paceline.worker.sandbox.inside import enter

    enter(1 << 30)
    channel = socket.socket(fileno=descriptor)
    data, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 1)
    told = json.loads(data)
    found = {name: tried(attempt) for name, attempt in attempts(told, descriptors[0]).items()}
    channel.send(json.dumps({"ok": True, "detail": json.dumps(found), "id": told["id"]}).encode())
    channel.recv(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
