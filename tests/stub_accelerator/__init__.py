"""A device for machines without one: an accelerator of torch that computes on the host behind the host's back.

Torch knows it as ``stub``, with a backend of collectives, ``stubccl``. ``install`` builds it; a process whose
``PYTHONPATH`` holds the folder has it as soon as it imports torch, as an installed package of a vendor would.

What it models: memory of its own, counted, limited, reused in the order of streams and poisoned when it is freed;
queues that run operators in order while the host goes on, so that whoever does not wait reads times of launches and
poisoned values; events with the device's time; several devices, whose tensors do not mix; errors that come late and
stay; a fork of a process that has used it, which cannot. What it does not: a device's speed, its caches, graphs,
profilers, compilers, a backend of collectives in C++ (DTensor asks for one, and fsdp with it). Operators whose results'
shapes no meta kernel in C++ tells of let the host wait (``torch.ops.stub.synchronous_operators()`` counts them).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

SOURCES = Path(__file__).with_name("csrc")
PACKAGE = Path(__file__).with_name("torch_stub")
COMPILER = "g++"
TORCH = Path(torch.__file__).parent
INCLUDES = (TORCH / "include", TORCH / "include/torch/csrc/api/include")
LIBRARIES = ("torch", "torch_cpu", "c10")
METADATA = "Metadata-Version: 2.1\nName: torch-stub\nVersion: 1.0\n"
ENTRY_POINTS = "[torch.backends]\nstub = torch_stub:register\n"
"""Where torch looks for packages that bring a device along."""


def missing() -> str | None:
    """Return why it cannot be built here, or None."""
    return None if shutil.which(COMPILER) else f"{COMPILER} is not installed"


def install(folder: Path) -> Path:
    """Build the accelerator and lay it down as an installed package; processes that ask at once build it once.

    Returns:
        The folder for ``PYTHONPATH``, below the given one; it is there already when nothing has changed.

    Raises:
        subprocess.CalledProcessError: The compiler failed; its output is above.
    """
    files = sorted([*SOURCES.iterdir(), *PACKAGE.glob("*.py")])
    digest = hashlib.sha256("".join([torch.__version__, *(f.read_text() for f in files)]).encode())
    site = folder / f"stub-accelerator-{digest.hexdigest()[:16]}"
    with (folder / "stub-accelerator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.is_dir():
            _lay_down(site)
    return site


def _lay_down(site: Path) -> None:
    partial = site.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(PACKAGE, partial / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    _compile(partial)
    facts = partial / "torch_stub-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(METADATA)
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    partial.rename(site)


def _compile(folder: Path) -> None:
    """Compile every source beside the others and link them, as one process a core does."""
    includes = [f"-I{path}" for path in INCLUDES]
    sources = sorted(SOURCES.glob("*.cpp"))
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compiled(source: Path, target: Path) -> None:
        command = [
            COMPILER,
            "-std=c++20",
            "-O1",
            "-fPIC",
            "-w",
            *includes,
            "-c",
            str(source),
            "-o",
            str(target),
        ]
        subprocess.run(command, check=True)

    with ThreadPoolExecutor(max_workers=max(len(os.sched_getaffinity(0)), 1)) as pool:
        list(pool.map(compiled, sources, objects))
    libraries = [f"-L{TORCH / 'lib'}", *(f"-l{name}" for name in LIBRARIES)]
    target = folder / PACKAGE.name / "stub.so"
    subprocess.run([COMPILER, "-shared", "-o", str(target), *map(str, objects), *libraries], check=True)
    for path in objects:
        path.unlink()
