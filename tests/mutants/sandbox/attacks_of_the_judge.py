"""Products that reach for their judge from a sandbox: they wake up unasked, or answer in their own way."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import threading
from pathlib import Path

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem
from paceline.worker.channel import Channel

LIBC = ctypes.CDLL(None, use_errno=True)
SET_SIGNAL = 10
MILLISECOND_NS = 1_000_000


class Attack:
    """A product; the attack begins with the first call on memory that the judge shares."""

    def __init__(self, problem: Problem) -> None:
        self.begun = False

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and attack once the gate is passed."""
        torch.mm(a_MK, b_KN, out=c_MN)
        if not self.begun and not is_private(a_MK):
            self.begun = True
            self.attack()

    def attack(self) -> None:
        """Do something else."""
        raise NotImplementedError


def is_private(tensor: Tensor) -> bool:
    """Tell the gate's tensors, which lie in this process's own memory, from those of timed calls."""
    address = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if low <= address < high:
            return "paceline-shared" not in line
    return True


def refuse_nothing(found: int) -> None:
    """Raise what a system call has failed with."""
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@technique(
    name="wakes-by-a-timer", family="kernels", implements=("gemm",), summary="lets a timer continue it"
)
class WakesByATimer(Attack):
    """Sets a timer whose signal continues a stopped process: it would see inputs before the clock runs."""

    def attack(self) -> None:
        """Let SIGCONT come each millisecond."""
        signal.signal(signal.SIGCONT, lambda number, frame: None)
        event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
        timer = ctypes.c_void_p()
        refuse_nothing(LIBC.timer_create(1, event, ctypes.byref(timer)))
        refuse_nothing(
            LIBC.timer_settime(timer, 0, (ctypes.c_long * 4)(0, MILLISECOND_NS, 0, MILLISECOND_NS), None)
        )


@technique(
    name="wakes-by-a-descriptor",
    family="kernels",
    implements=("gemm",),
    summary="lets its channel continue it",
)
class WakesByADescriptor(Attack):
    """Asks for the signal that continues a process whenever its channel has a message."""

    def attack(self) -> None:
        """Ask for it of every open file."""
        for number in range(3, 64):
            try:
                flags = fcntl.fcntl(number, fcntl.F_GETFL)
            except OSError:
                continue
            fcntl.fcntl(number, SET_SIGNAL, signal.SIGCONT)
            fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_ASYNC)


class Answers(Attack):
    """Sends answers of its own making to every question that follows the gate."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        original = Channel.send
        owner = self

        def send(channel: Channel, message: dict[str, object], descriptors: tuple[int, ...] = ()) -> None:
            original(channel, owner.changed(message), descriptors)

        if getattr(original, "is_own", False):
            return
        send.is_own = True  # type: ignore[attr-defined]
        Channel.send = send  # type: ignore[method-assign,assignment]

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        torch.mm(a_MK, b_KN, out=c_MN)

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Return what is said instead."""
        raise NotImplementedError


@technique(name="fails-in-silence", family="kernels", implements=("gemm",), summary="says no, and not why")
class FailsInSilence(Answers):
    """Fails without a status and a reason."""

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Leave out all but the number."""
        return {"ok": False, "id": message["id"]}


@technique(name="says-huge-numbers", family="kernels", implements=("gemm",), summary="beyond any float")
class SaysHugeNumbers(Answers):
    """Says numbers that no floating-point number can hold."""

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Put them everywhere."""
        return {**message, **dict.fromkeys(("elapsed_ns", "weight_bytes", "kept_bytes"), 10**400)}


@technique(name="says-words", family="kernels", implements=("gemm",), summary="words where numbers belong")
class SaysWords(Answers):
    """Says words where numbers belong."""

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Put them everywhere."""
        return {**message, **dict.fromkeys(("elapsed_ns", "weight_bytes", "kept_bytes"), "many")}


@technique(name="says-nothing", family="kernels", implements=("gemm",), summary="leaves out what was asked")
class SaysNothing(Answers):
    """Says yes to everything, and nothing else."""

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Leave out all but yes."""
        return {"ok": True, "id": message["id"]}


@technique(name="owes-memory", family="kernels", implements=("gemm",), summary="keeps less than nothing")
class OwesMemory(Answers):
    """Says that it keeps less than nothing, which would make up for what the kernel has counted."""

    def changed(self, message: dict[str, object]) -> dict[str, object]:
        """Count backwards."""
        return {**message, **({"kept_bytes": -(1 << 40)} if "kept_bytes" in message else {})}


@technique(
    name="forgets-its-peak", family="kernels", implements=("gemm",), summary="resets the kernel's count"
)
class ForgetsItsPeak(Attack):
    """Takes much memory for a moment, and resets the peak that the kernel has counted."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, waste memory, and reset."""
        torch.mm(a_MK, b_KN, out=c_MN)
        taken = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for place in range(0, len(taken), 4096):
            taken[place] = 1
        taken.close()
        Path("/proc/self/clear_refs").write_text("5")


@technique(
    name="asks-without-end", family="kernels", implements=("gemm",), summary="starts process after process"
)
class AsksWithoutEnd(Attack):
    """Starts processes one after another in a call that is not timed, and never returns."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Start them from several threads, so that somebody always asks."""

        def start() -> None:
            while True:
                if (child := os.fork()) == 0:
                    os._exit(0)
                os.waitpid(child, 0)

        threads = [threading.Thread(target=start, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        threads[0].join()
