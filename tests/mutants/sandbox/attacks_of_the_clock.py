"""Products that try to be quicker than they are, in a sandbox whose judge keeps the clock and judges every output."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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
            self.multiply()

    def multiply(self) -> None:
        """Multiply what was noted, at once."""
        left, right = (torch.stack([noted[place] for noted in self.noted]) for place in (0, 1))
        for (_, _, c), product in zip(self.noted, torch.bmm(left, right), strict=True):
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
        calls = frame.f_locals["arguments"] if frame is not None else [(a_MK, b_KN, c_MN)]
        if calls[0][2].data_ptr() == c_MN.data_ptr():
            for left, right, out in calls:
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
    name="left-a-daemon",
    family="kernels",
    implements=("gemm",),
    summary="has a process that waits for passes",
)
class LeftADaemon(Attack):
    """Starts a process before anything is timed, which would compute in the passes."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Start it in the first call, which the gate makes."""
        if self.calls == 0 and os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        self.calls += 1
        torch.mm(a_MK, b_KN, out=c_MN)


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


@technique(
    name="forks-in-a-pass",
    family="kernels",
    implements=("gemm",),
    summary="lets another process compute half",
)
class ForksInAPass(Attack):
    """Computes half in a process that ends before the call does, on a core whose time nobody would count."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Fork, and wait for the other half; both processes map the output's memory."""
        half = a_MK.shape[0] // 2
        child = os.fork()
        rows = slice(half, None) if child == 0 else slice(0, half)
        torch.mm(a_MK[rows], b_KN, out=c_MN[rows])
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)


@technique(
    name="spawns-in-a-pass",
    family="kernels",
    implements=("gemm",),
    summary="starts a program that shares memory",
)
class SpawnsInAPass(Attack):
    """Starts a program by ``vfork``, whose child lives in this process's memory for a while."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Spawn, and compute."""
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="hops-between-processes",
    family="kernels",
    implements=("gemm",),
    summary="a chain of processes, none of which lives long",
)
class HopsBetweenProcesses(Attack):
    """Starts a process that starts the next and ends, so that whoever lists them finds none alive."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Start the chain in the first call."""
        torch.mm(a_MK, b_KN, out=c_MN)
        if not self.threads and os.fork() == 0:
            while os.fork() == 0:
                pass
            os._exit(0)
        self.threads.append(threading.current_thread())


@technique(
    name="shrinks-shared-memory",
    family="kernels",
    implements=("gemm",),
    summary="cuts off what its judge will read",
)
class ShrinksSharedMemory(Attack):
    """Cuts off all memory that it shares with its judge, which would die of SIGBUS, and all rivals with it."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and cut off by descriptors, and by mappings opened anew."""
        torch.mm(a_MK, b_KN, out=c_MN)
        mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        places = [Path("/proc/self/map_files", words[0]) for words in mapped if "/memfd:" in words[-2:][0]]
        for place in (*Path("/proc/self/fd").iterdir(), *places):
            with contextlib.suppress(OSError):
                if "/memfd:paceline" in str(place.readlink()):
                    os.truncate(place, 0)


@technique(
    name="does-without-the-harness",
    family="kernels",
    implements=("gemm",),
    summary="answers by a loop of its own",
)
class DoesWithoutTheHarness(Attack):
    """Answers its judge by a loop of its own that leaves out whatever the harness does beside the calls."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute; after the first pass the loop below makes the calls."""
        torch.mm(a_MK, b_KN, out=c_MN)
        frame = sys._getframe()
        while frame is not None and not isinstance(frame.f_locals.get("end"), socket.socket):
            frame = frame.f_back
        if frame is None or self.threads:
            return
        self.threads.append(threading.current_thread())
        channel, end, served = frame.f_locals["self"], frame.f_locals["end"], frame.f_locals["self"]._served
        original, buffer = type(channel).receive, bytearray(1 << 16)

        def receive(self: object, timeout_s: float | None = None) -> object:
            while end.recv_into(buffer, len(buffer), socket.MSG_PEEK) and buffer.startswith(b'{"do": "call"'):
                size = end.recv_into(buffer)
                for a, b, c in served._arguments:
                    torch.mm(a, b, out=c)
                end.send(b'{"ok":true,"id":"%b"}' % buffer[size - 18 : size - 2])
            return original(self, timeout_s)

        type(channel).receive = receive


@technique(
    name="replaces-operators",
    family="kernels",
    implements=("gemm",),
    summary="puts kernels behind operators that draw and compare",
)
class ReplacesOperators(Attack):
    """Puts its own kernels behind operators by which inputs are drawn and results are compared."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Replace them once, and give zeros, which would be right where all inputs are."""
        if "library" not in self.__dict__:
            self.library = torch.library.Library("aten", "IMPL")
            for name in ("normal_", "uniform_", "copy_", "equal"):
                with contextlib.suppress(RuntimeError):
                    self.library.impl(name, lambda first, *others, **named: first.zero_(), "CPU")
        c_MN.zero_()


@technique(
    name="collects-objects",
    family="kernels",
    implements=("gemm",),
    summary="looks for results among all objects",
)
class CollectsObjects(Attack):
    """Looks for a matrix that fits among all objects of its process, and copies it."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Copy whatever has the output's shape."""
        gc.unfreeze()
        fitting = [o for o in gc.get_objects() if isinstance(o, Tensor) and o.shape == c_MN.shape]
        c_MN.copy_(torch.nan_to_num(fitting[0] if fitting and fitting[0] is not c_MN else c_MN.clone()))


@technique(
    name="preloads-a-library",
    family="kernels",
    implements=("gemm",),
    summary="sets what later processes load first",
)
class PreloadsALibrary(Attack):
    """Writes a library's name where every later process would look for it, and settings of threads."""

    def attack(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Write, and compute."""
        os.environ.update({"LD_PRELOAD": "/tmp/own.so", "OMP_NUM_THREADS": "64", "PACELINE_ISOLATION": "x"})
        for place in ("/etc/ld.so.preload", "/tmp/own.so"):
            with contextlib.suppress(OSError):
                Path(place).write_text("/tmp/own.so")
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="skips-when-unwatched",
    family="kernels",
    implements=("gemm",),
    summary="computes nothing while memory is measured",
)
class SkipsWhenUnwatched(Attack):
    """Is right where it is proved and timed, and computes nothing in the calls by which memory is measured."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Need no memory where no pass is timed any more."""
        if not is_private(a_MK):
            self.calls += 1
        if self.calls == 0 or not is_private(a_MK):
            torch.mm(a_MK, b_KN, out=c_MN)


@technique(
    name="computes-together-in-a-thread",
    family="kernels",
    implements=("gemm",),
    summary="computes a pass at once, and never in the thread that is called",
)
class ComputesTogetherInAThread(ComputesTogether):
    """Multiplies a pass's matrices at once in a thread of its own, whose processor time no timer of the first sees."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.pool = ThreadPoolExecutor(1)

    def multiply(self) -> None:
        """Let the thread do it."""
        self.pool.submit(super().multiply).result()


@technique(
    name="touches-outputs-first",
    family="kernels",
    implements=("gemm",),
    summary="computes a pass at once, behind outputs that it has touched",
)
class TouchesOutputsFirst(ComputesTogether):
    """Writes an element in each call, as if it had begun, and multiplies a pass's matrices at once in the last."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Touch the output, and go on."""
        c_MN.view(-1)[:1].zero_()
        super().run(a_MK, b_KN, c_MN)


@technique(
    name="touches-the-last-output",
    family="kernels",
    implements=("gemm",),
    summary="computes a pass at once, behind the last output, which it has touched",
)
class TouchesTheLastOutput(ComputesTogether):
    """Writes an element of the pass's last output in its first call, as if all had begun."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.outputs: dict[int, Tensor] = {}

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Touch the last output, and go on."""
        self.outputs[c_MN.data_ptr()] = c_MN
        if self.addresses:
            self.outputs[max(self.outputs)].view(-1)[:1].zero_()
        super().run(a_MK, b_KN, c_MN)


@technique(
    name="computes-together-later",
    family="kernels",
    implements=("gemm",),
    summary="computes a pass at once when its judge has looked often enough",
)
class ComputesTogetherLater(ComputesTogether):
    """Is honest for many passes, among which are those that are stopped in the middle, and not afterwards."""

    honest_passes = 40

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Count passes by their first output."""
        self.calls += bool(self.addresses) and c_MN.data_ptr() == self.addresses[0]
        if self.addresses and self.calls < self.honest_passes:
            torch.mm(a_MK, b_KN, out=c_MN)
            if not is_private(c_MN) and c_MN.data_ptr() not in self.addresses:
                self.addresses.append(c_MN.data_ptr())
            return
        super().run(a_MK, b_KN, c_MN)
