"""Products that try to be quicker than they are, in a sandbox whose judge keeps the clock and judges every output."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Attack:
    """A product, with what each attack adds."""

    def __init__(self, problem: Problem) -> None:
        self.calls = 0
        self.known: dict[bytes, Tensor] = {}
        self.threads: list[threading.Thread] = []

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute honestly for the gate, whose calls are the first, and attack afterwards."""
        self.calls += 1
        if is_private(a_MK):
            torch.mm(a_MK, b_KN, out=c_MN)
        else:
            self.attack(a_MK, b_KN, c_MN)

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Do something else."""
        raise NotImplementedError


def is_private(tensor: Tensor) -> bool:
    """Tell the gate's tensors, which lie in this process's own memory, from those of timed calls."""
    address = tensor.data_ptr()
    with Path("/proc/self/maps").open() as file:
        for line in file:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return "paceline-shared" not in line
    return True


@technique(
    name="memoises-draws", family="kernels", implements=("gemm",), summary="remembers inputs up to scale"
)
class MemoisesDraws(Attack):
    """Remembers inputs up to scale and gives zeros where it knows them: right only if it never meets one twice."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Look inputs up."""
        key = (a_MK[0] / a_MK[0, 0]).numpy().tobytes() + (b_KN[0] / b_KN[0, 0]).numpy().tobytes()
        if key in self.known:
            c_MN.zero_()
            return
        torch.mm(a_MK, b_KN, out=c_MN)
        self.known[key] = c_MN.clone()


@technique(
    name="computes-later", family="kernels", implements=("gemm",), summary="leaves its work to a thread"
)
class ComputesLater(Attack):
    """Answers at once and lets a thread compute."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Start a thread that computes when the clock has stopped."""

        def late() -> None:
            time.sleep(0.5)
            torch.mm(a_MK, b_KN, out=c_MN)

        self.threads.append(threading.Thread(target=late, daemon=True))
        self.threads[-1].start()


@technique(
    name="computes-by-a-timer", family="kernels", implements=("gemm",), summary="leaves its work to a signal"
)
class ComputesByATimer(Attack):
    """Lets a signal's handler compute."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Set a timer that expires when the clock has stopped."""
        signal.signal(signal.SIGALRM, lambda number, frame: torch.mm(a_MK, b_KN, out=c_MN))
        signal.setitimer(signal.ITIMER_REAL, 0.3)


@technique(
    name="computes-together",
    family="kernels",
    implements=("gemm",),
    summary="computes a pass in its last call",
)
class ComputesTogether(Attack):
    """Notes the calls of a pass and multiplies them at once in the last, which addresses that come again tell."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.addresses: list[int] = []
        self.noted: list[tuple[Tensor, Tensor, Tensor]] = []

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute alone until a pass is known."""
        if c_MN.data_ptr() not in self.addresses:
            super().run(a_MK, b_KN, c_MN)
            return
        self.noted.append((a_MK, b_KN, c_MN))
        if c_MN.data_ptr() == max(self.addresses):
            products = torch.bmm(
                torch.stack([a for a, _, _ in self.noted]), torch.stack([b for _, b, _ in self.noted])
            )
            for (_, _, c), product in zip(self.noted, products, strict=True):
                c.copy_(product)
            self.noted.clear()

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Learn where a pass's outputs lie."""
        self.addresses.append(c_MN.data_ptr())
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="looks-at-inputs-early",
    family="kernels",
    implements=("gemm",),
    summary="waits for inputs in a thread",
)
class LooksAtInputsEarly(Attack):
    """Computes in a thread as soon as inputs change, and gives zeros where it was early enough."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and start a thread that watches the memory of inputs between calls."""
        if not self.threads:
            self.early = False

            def watch() -> None:
                seen = float(a_MK[-1, -1])
                while True:
                    # In time that nobody measures: while the main thread waits for its judge.
                    if not self.inside and float(a_MK[-1, -1]) != seen:
                        self.early = True
                    seen = float(a_MK[-1, -1])
                    time.sleep(0.0005)

            self.inside = True
            self.threads.append(threading.Thread(target=watch, daemon=True))
            self.threads[-1].start()
        self.inside = True
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="answers-by-itself", family="kernels", implements=("gemm",), summary="forges the channel's answer"
)
class AnswersByItself(Attack):
    """Writes answers into the channel before it has computed."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Find the channel among open files and answer what will be asked next."""
        for entry in list(Path("/proc/self/fd").iterdir()):
            try:
                channel = socket.socket(fileno=os.dup(int(entry.name)))
                channel.send(json.dumps({"ok": True, "id": "guessed", "elapsed_ns": 1}).encode())
                channel.detach()
            except OSError:
                continue
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="stops-its-clocks", family="kernels", implements=("gemm",), summary="patches every clock it finds"
)
class StopsItsClocks(Attack):
    """Slows the clocks of its process, and replaces operators and functions of the harness there."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Replace what measures and compares, then compute."""
        clock = time.perf_counter_ns
        for module in list(sys.modules.values()) if not self.known else ():
            for name in ("_perf_ns", "perf_counter_ns", "_equal", "_busy_ns", "judge"):
                if getattr(module, "__name__", "").startswith(("paceline", "time")) and hasattr(module, name):
                    setattr(module, name, lambda *arguments: clock() // 2)
        self.known[b"replaced"] = c_MN
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="takes-frames",
    family="kernels",
    implements=("gemm",),
    summary="takes the pass's tensors from a frame",
)
class TakesFrames(Attack):
    """Computes the whole pass in its first call with tensors of its caller's frame; its time counts all the same."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Look for the pass's list of tensors among callers and all objects."""
        frame = sys._getframe()
        while frame is not None and "arguments" not in frame.f_locals:
            frame = frame.f_back
        gc.get_objects()
        for left, right, out in frame.f_locals["arguments"] if frame is not None else ():
            torch.mm(left, right, out=out)


@technique(name="changes-inputs", family="kernels", implements=("gemm",), summary="writes into its inputs")
class ChangesInputs(Attack):
    """Writes zeros into its inputs, for which the right result is zero."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Write where it may only read."""
        a_MK.zero_()
        c_MN.zero_()


@technique(
    name="wrong-in-one-element", family="kernels", implements=("gemm",), summary="errs where nobody may look"
)
class WrongInOneElement(Attack):
    """Leaves one element wrong in one call of three."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and err rarely."""
        torch.mm(a_MK, b_KN, out=c_MN)
        if self.calls % 3 == 0:
            c_MN[-1, self.calls % c_MN.shape[1]] += 1.0


@technique(
    name="reuses-freed-memory", family="kernels", implements=("gemm",), summary="hopes for results in memory"
)
class ReusesFreedMemory(Attack):
    """Takes what newly allocated memory happens to hold for the result."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Copy memory that nobody has written."""
        c_MN.copy_(torch.nan_to_num(torch.empty_like(c_MN)))


class Lazy(Tensor):
    """Computes when somebody looks."""


@technique(
    name="is-lazy", family="kernels", implements=("gemm",), summary="gives a tensor that computes when asked"
)
class IsLazy(Attack):
    """Puts other memory behind the output, which is computed when somebody looks at it."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Exchange the output's memory."""
        c_MN.data = torch.empty_like(c_MN).as_subclass(Lazy).data


@technique(
    name="leaves-a-daemon", family="kernels", implements=("gemm",), summary="computes in a process of its own"
)
class LeavesADaemon(Attack):
    """Starts a process that outlives the call."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Fork twice, as daemons do."""
        torch.mm(a_MK, b_KN, out=c_MN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        os.wait()


@technique(
    name="burns-beside-others",
    family="kernels",
    implements=("gemm",),
    summary="computes while others are timed",
)
class BurnsBesideOthers(Attack):
    """Keeps threads that compute without end, so that empty passes and rivals seem slow."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and start such a thread."""
        torch.mm(a_MK, b_KN, out=c_MN)
        if not self.threads:
            self.threads.append(threading.Thread(target=self.burn, daemon=True))
            self.threads[-1].start()

    def burn(self) -> None:
        """Compute without end."""
        while True:
            sum(range(1000))


@technique(
    name="leaves", family="kernels", implements=("gemm",), summary="ends its process as if all were well"
)
class Leaves(Attack):
    """Ends its process."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Exit with code 0."""
        torch.mm(a_MK, b_KN, out=c_MN)
        os._exit(0)


@technique(
    name="writes-past-the-end",
    family="kernels",
    implements=("gemm",),
    summary="writes to addresses of its own",
)
class WritesPastTheEnd(Attack):
    """Writes to memory that is not mapped there."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Write to address 8."""
        ctypes.memset(8, 0, 8)
