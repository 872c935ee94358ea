"""What this machine can run, found by trying, and how to get the rest."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import PacelineError
from paceline.base.families.family import family_names
from paceline.base.techniques.requirements import lacking, version_of
from paceline.drivers.machine.engine import engine_errors, open_engine
from paceline.drivers.machine.idleness import look
from paceline.drivers.machine.lease import holder
from paceline.drivers.machine.leftovers import find_leftovers
from paceline.drivers.machine.quarantine import standings
from paceline.spec.content import checkout_root, techniques

_TORCH_PROBE = """
import json, torch
import torch.distributed as dist
accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
print(json.dumps({
    "torch": torch.__version__,
    "gloo": dist.is_available() and dist.is_gloo_available(),
    "nccl": dist.is_available() and dist.is_nccl_available(),
    "accelerator": accelerator.type if accelerator else None,
    "count": torch.accelerator.device_count(),
}))
"""
PROBE_TIMEOUT_S = 60
LOOK_S = 3.0
CLONE = "git clone https://github.com/paceline/paceline && make -C paceline setup"
NETWORK_FIX = (
    "apt-get install iproute2 iptables, and run as root (in a container: --cap-add NET_ADMIN,SYS_ADMIN)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing that this machine can or cannot do."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None


def examine() -> list[Capability]:
    """Look at everything that runners need."""
    return [
        _checkout(),
        *_torch(),
        *_network(),
        *_docker(),
        *_slurm(),
        *_tools(),
        *_extras(),
        *_packages(),
        *_machine(),
    ]


def _checkout() -> Capability:
    """Say what an installed wheel lacks: it carries what measuring needs, and neither history nor what made it."""
    root, version = checkout_root(), metadata.version("paceline")
    if root is not None:
        return Capability(name="checkout", ok=True, detail=f"paceline {version} of {root}")
    return Capability(
        name="checkout",
        ok=False,
        detail=f"paceline {version} from a wheel: suites, runners, techniques, documents and the site are there; "
        "git history, published results, calibration, containers/ and tests/ are not",
        fix=CLONE,
    )


def accelerator() -> str | None:
    """Return the kind of accelerator that torch sees here, or None."""
    try:
        found = _probe()["accelerator"]
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
    return None if found is None else str(found)


def _probe() -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-c", _TORCH_PROBE],
        capture_output=True,
        text=True,
        timeout=PROBE_TIMEOUT_S,
        check=True,
    )
    facts: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return facts


def _torch() -> Iterator[Capability]:
    try:
        facts = _probe()
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        yield Capability(
            name="torch", ok=False, detail=detail[0] if detail else "not importable", fix=_torch_fix()
        )
        return
    yield Capability(name="torch", ok=True, detail=f"torch {facts['torch']}")
    yield Capability(
        name="local-cpu",
        ok=facts["gloo"],
        detail="ranks as processes over Gloo" if facts["gloo"] else "this torch has no Gloo",
        fix=None if facts["gloo"] else "a torch build with torch.distributed",
    )
    accelerator = facts["accelerator"]
    yield Capability(
        name="accelerator",
        ok=accelerator is not None,
        detail=f"{facts['count']} × {accelerator}" if accelerator else "none visible to torch",
        fix=None if accelerator else "run on a GPU or NPU machine: paceline job export … --output DIR",
    )


def _torch_fix() -> str:
    if checkout_root() is not None:
        return "make setup, or make setup TORCH=keep with the torch of your accelerator's vendor"
    return "pip install torch, from your accelerator's vendor or from https://download.pytorch.org/whl/cpu"


def _network() -> Iterator[Capability]:
    from paceline.worker.network.links import Link, supported  # noqa: PLC0415 - standard library only

    for link, what in (
        (Link(name="rate", rate_bytes_per_s=12.5e6), "a network namespace a rank, links with a rate"),
        (Link(name="delay", delay_s=0.001), "links with a real delay"),
    ):
        reason = supported(link)
        yield Capability(
            name="netns-cpu" if link.name == "rate" else "netns-cpu delay",
            ok=reason is None,
            detail=what if reason is None else reason,
            fix=None if reason is None else NETWORK_FIX,
        )


def _docker() -> Iterator[Capability]:
    detail = "no image of ours: paceline/cpu:local"
    fix = "make image-base image" if checkout_root() else f"{CLONE} image-base image"
    ok = False
    try:
        engine = open_engine(LOOK_S)
        with engine_errors():
            ok = bool(engine.images("paceline/cpu", quiet=True))
            version = engine.version()["Version"]
        detail = f"Docker Engine {version}, image paceline/cpu" if ok else detail
    except PacelineError as error:
        lines = str(error).splitlines()
        detail, fix = lines[0], lines[-1].removeprefix("  fix: ")
    yield Capability(name="docker-cpu", ok=ok, detail=detail, fix=None if ok else fix)


def _slurm() -> Iterator[Capability]:
    detail, ok, fix = "no sbatch here", False, "run on a login node of the cluster"
    if shutil.which("sbatch") and shutil.which("sinfo"):
        try:
            command = ["sinfo", "--noheader", "--format=%D"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
            )
            ok = done.returncode == 0
            detail = (
                f"nodes: {' + '.join(done.stdout.split())}" if ok else done.stderr.strip().splitlines()[-1]
            )
        except (subprocess.SubprocessError, OSError, IndexError):
            detail = "the scheduler does not answer"
        fix = "ask the cluster's administrators, or set SLURM_CONF"
    yield Capability(name="slurm-cpu", ok=ok, detail=detail, fix=None if ok else fix)


def _tools() -> Iterator[Capability]:
    program, checkout = shutil.which("git") is not None, checkout_root() is not None
    git = program and checkout
    yield Capability(
        name="git",
        ok=git,
        detail="results carry the commit" if git else "results carry no commit: grade C at best",
        fix=None if git else CLONE if program else "apt-get install git",
    )
    if not checkout:  # a browser is for tests of the site alone, and a wheel has no tests
        return
    chromium = next(
        (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
    )
    yield Capability(
        name="browser",
        ok=chromium is not None,
        detail=chromium or "no Chromium: the site's tests cannot run",
        fix=None if chromium else "apt-get install chromium",
    )


def _machine() -> Iterator[Capability]:
    """Say whether a timed run could begin now."""
    found = look()
    disturbances = found.disturbances
    yield Capability(
        name="idle machine",
        ok=not disturbances,
        detail="; ".join(disturbances) or "nobody else computes here",
        fix="end other work: noise widens every interval" if disturbances else None,
    )
    yield Capability(
        name="whole cores",
        ok=found.limit is None,
        detail=found.limit or f"no quota limits the {number_of(found.cores, 'core')}",
        fix="start the container without --cpus (give it cores with --cpuset-cpus)" if found.limit else None,
    )
    other = holder()
    yield Capability(
        name="lease",
        ok=other is None,
        detail=f"held by {other.text()}" if other else "free: nobody measures on this machine",
        fix="wait for it, or paceline run … --allow-concurrent" if other else None,
    )
    for standing in standings().values():
        if standing.quarantined:
            yield Capability(
                name=f"runner {standing.runner}",
                ok=False,
                detail=standing.text().partition(" (to use it again:")[0],
                fix=f"paceline doctor --unquarantine {standing.runner}",
            )
    leftovers = find_leftovers()
    if leftovers:
        yield Capability(
            name="leftovers",
            ok=False,
            detail="; ".join(f"{x.kind} {x.name}" for x in leftovers),
            fix="paceline doctor --clean",
        )


EXTRAS: Mapping[str, tuple[str, str]] = {
    "docker": ("docker", "containers through the Docker Engine"),
    "nvidia": ("pynvml", "NVIDIA's management library in Python"),
    "fast": ("duckdb", "SQL over many records"),
    "hf": ("datasets", "models and data of the hub"),
    "serve": ("uvicorn", "servers and the load generator of serving suites"),
    "openai": ("openai", "models behind endpoints"),
    "math": ("math_verify", "comparison of formulas in answers"),
    "figures": ("resvg_py", "charts as PNG"),
}
"""Extra → the module that it brings, and what for."""


def _packages() -> Iterator[Capability]:
    """Say of each package that a technique requires whether it is there, and in which version."""
    wanted: dict[str, list[str]] = {}
    for family in family_names():
        for name, source in techniques(family).items():
            for package in source.info.requires.packages:
                wanted.setdefault(package, []).append(name)
    for package, names in sorted(wanted.items()):
        whom, reasons = f"for {', '.join(names)}", lacking([package])
        version = version_of(package.partition(">=")[0])
        yield Capability(
            name=f"package {package}",
            ok=not reasons,
            detail=f"version {version}, {whom}"
            if not reasons
            else f"{whom}: {reasons[0].partition(': ')[0]}",
            fix=f"pip install '{package}'" if reasons else None,
        )


def _extras() -> Iterator[Capability]:
    for extra, (module, what) in EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        yield Capability(
            name=f"extra {extra}",
            ok=there,
            detail=what if there else f"not installed: {what}",
            fix=None if there else f"pip install 'paceline[{extra}]'",
        )
