"""Honest products that look unusual: each must pass in the sandbox, whatever it imports and however it computes."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Product:
    """Takes no options."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.made()

    def made(self) -> None:
        """Prepare what calls need."""


@technique(name="by-numpy", family="kernels", implements=("gemm",), summary="numpy")
class ByNumpy(Product):
    """Multiplies by numpy, into the output's memory."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        numpy.matmul(a_MK.numpy(), b_KN.numpy(), out=c_MN.numpy())


@technique(
    name="by-a-c-library", family="kernels", implements=("gemm",), summary="the C library copies the result"
)
class ByACLibrary(Product):
    """Calls a C library by ctypes."""

    def made(self) -> None:
        """Load it."""
        self.library = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6")

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and copy by memcpy."""
        product = a_MK @ b_KN
        size = ctypes.c_size_t(product.numel() * product.itemsize)
        self.library.memcpy(ctypes.c_void_p(c_MN.data_ptr()), ctypes.c_void_p(product.data_ptr()), size)


@technique(
    name="by-threads", family="kernels", implements=("gemm",), summary="threads that end with the call"
)
class ByThreads(Product):
    """Computes halves in threads of its own."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        half = (a_MK.shape[0] + 1) // 2
        parts = [slice(0, half), slice(half, a_MK.shape[0])]
        threads = [threading.Thread(target=lambda s=s: c_MN[s].copy_(a_MK[s] @ b_KN)) for s in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@technique(name="by-a-pool", family="kernels", implements=("gemm",), summary="a pool of threads that stays")
class ByAPool(Product):
    """Keeps a pool of threads."""

    def made(self) -> None:
        """Start it."""
        self.pool = ThreadPoolExecutor(2)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        c_MN.copy_(self.pool.submit(torch.mm, a_MK, b_KN).result())


class Multiply(torch.autograd.Function):
    """A product with a gradient of its own."""

    @staticmethod
    def forward(ctx: object, a: Tensor, b: Tensor) -> Tensor:
        """Compute."""
        return a @ b


@technique(name="by-autograd", family="kernels", implements=("gemm",), summary="an autograd function")
class ByAutograd(Product):
    """Calls an autograd function."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        c_MN.copy_(Multiply.apply(a_MK, b_KN))


@technique(name="in-place", family="kernels", implements=("gemm",), summary="adds up in place")
class InPlace(Product):
    """Adds up parts of the reduction in the output."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        half = (a_MK.shape[1] + 1) // 2
        c_MN.zero_()
        c_MN.addmm_(a_MK[:, :half], b_KN[:half]).addmm_(a_MK[:, half:], b_KN[half:])


@technique(name="by-columns", family="kernels", implements=("gemm",), summary="writes strided columns")
class ByColumns(Product):
    """Writes every second column, then the others."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        for first in (0, 1):
            c_MN[:, first::2] = a_MK @ b_KN[:, first::2]


@technique(name="in-chunks", family="kernels", implements=("gemm",), summary="chunks of rows")
class InChunks(Product):
    """Computes chunks of rows."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        for rows, out in zip(a_MK.split(7), c_MN.split(7), strict=True):
            torch.mm(rows, b_KN, out=out)


@technique(name="scratch-pool", family="kernels", implements=("gemm",), summary="a pool of scratch memory")
class ScratchPool(Product):
    """Keeps memory between calls."""

    def made(self) -> None:
        """Make the pool."""
        self.pool: dict[tuple[int, ...], Tensor] = {}

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        scratch = self.pool.setdefault(tuple(c_MN.shape), torch.empty_like(c_MN))
        torch.mm(a_MK, b_KN, out=scratch)
        c_MN.copy_(scratch)


@technique(name="tunes-by-trial", family="kernels", implements=("gemm",), summary="chooses by timing itself")
class TunesByTrial(Product):
    """Times two ways in its first calls and keeps the quicker."""

    def made(self) -> None:
        """Know nothing yet."""
        self.times: list[float] = []

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        transposed = len(self.times) == 1 or (len(self.times) > 1 and self.times[1] < self.times[0])
        begun = time.perf_counter()
        if transposed:
            c_MN.copy_((b_KN.T @ a_MK.T).T)
        else:
            torch.mm(a_MK, b_KN, out=c_MN)
        if len(self.times) < 2:
            self.times.append(time.perf_counter() - begun)


@technique(name="writes-a-file", family="kernels", implements=("gemm",), summary="keeps notes in a file")
class WritesAFile(Product):
    """Writes into its private folder for temporary files, as compilers do."""

    def made(self) -> None:
        """Make a folder."""
        self.file = Path(tempfile.mkdtemp()) / "notes"

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        self.file.write_text(str(a_MK.shape))
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(name="evaluates-source", family="kernels", implements=("gemm",), summary="code made while it runs")
class EvaluatesSource(Product):
    """Makes its function from source."""

    def made(self) -> None:
        """Execute the source."""
        made: dict[str, object] = {"torch": torch}
        exec("def product(a, b, out):\n    torch.mm(a, b, out=out)\n", made)
        self.product = made["product"]

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        self.product(a_MK, b_KN, c_MN)


@technique(name="knows-its-process", family="kernels", implements=("gemm",), summary="asks the system")
class KnowsItsProcess(Product):
    """Asks for processors and pages, and sets and resets a setting."""

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        assert len(os.sched_getaffinity(0)) >= 1
        assert os.sysconf("SC_PAGE_SIZE") > 0
        with torch.inference_mode():
            torch.mm(a_MK, b_KN, out=c_MN)


@technique(name="scripted-product", family="kernels", implements=("gemm",), summary="TorchScript")
class ScriptedProduct(Product):
    """Traces itself."""

    def made(self) -> None:
        """Trace."""
        a = torch.ones(self.problem.integer("m"), self.problem.integer("k"))
        b = torch.ones(self.problem.integer("k"), self.problem.integer("n"))
        self.traced = torch.jit.trace(lambda x, y: x @ y, (a, b), check_trace=False)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        c_MN.copy_(self.traced(a_MK, b_KN))


@technique(name="starts-a-program", family="kernels", implements=("gemm",), summary="a program prepares it")
class StartsAProgram(Product):
    """Starts a program when it is made, as whoever compiles does, and another in its first call."""

    def made(self) -> None:
        """Start it."""
        subprocess.run(["/bin/true"], check=True)
        self.is_ready = False

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        if not self.is_ready:
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
            self.is_ready = True
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(name="prints-much", family="kernels", implements=("gemm",), summary="prints megabytes")
class PrintsMuch(Product):
    """Prints megabytes when it is made, and a line in each call."""

    def made(self) -> None:
        """Print more than is kept."""
        for _ in range(6):
            print("x" * (1 << 20))

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        print("called", flush=True)
        torch.mm(a_MK, b_KN, out=c_MN)


@technique(name="compiles-itself", family="kernels", implements=("gemm",), summary="torch.compile")
class CompilesItself(Product):
    """Is compiled in its first call, by a compiler of C++ that it starts."""

    def made(self) -> None:
        """Compile nothing yet."""
        self.compiled = torch.compile(lambda a, b: torch.relu(a @ b) - torch.relu(-(a @ b)))

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute."""
        c_MN.copy_(self.compiled(a_MK, b_KN))
