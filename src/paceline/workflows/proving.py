"""What works on this machine, proved within five minutes: a kernel, a collective, a training step, a request.

Each proof is a suite of one technique at one small point, measured by the ordinary ``paceline run`` into a store that
is thrown away: what is proved is the path that runs take, from the job folder to the sealed record.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.analysis.failures import grouped
from paceline.base.units import format_quantity
from paceline.drivers.machine import lease, portrait
from paceline.drivers.machine.portrait import Portrait
from paceline.families.serving.core.load.findings.certificate import blames_client
from paceline.records.format.record import Measurement
from paceline.records.identity import host_class, utc
from paceline.records.store.folder import load
from paceline.records.store.proofs import Proof, ProofReport
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner

LIMIT_S = 300.0
PROOF_S = 100.0
"""A proof that takes longer has failed: that of a machine that works takes five to thirty seconds."""
LEAST_S = 10.0
TRIES = 3
"""Of a proof whose load client a busy machine made late."""
END_S = 15.0
RUNNERS = {
    "cpu": "local-cpu",
    "cuda": "local-cuda",
    "rocm": "local-rocm",
    "npu": "local-npu",
    "plugin": "local-plugin",
}
SOFT = frozenset({"unsupported", "skipped"})
"""Statuses of what is not there, which is no failure."""
Run = Callable[[Path, str, Path, float], tuple[int, str]]
"""Measures a suite's file on a runner into a store within some seconds; the exit code, and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One proof that can be made."""

    name: str
    runner: str
    suite: Mapping[str, Any]
    shown: Callable[[Mapping[str, Measurement]], str]
    """Says what was measured, by metric."""
    fix: str
    missing: str | None = None
    """Why it cannot be made here."""
    enable: str | None = None
    """What to do then."""


ELSEWHERE = "on a machine with one, after: paceline job export SUITE --output DIR; docs/installing.md"


def trials(found: Portrait) -> Iterator[Trial]:
    """Yield what can be proved, the accelerator's first: time may run out."""
    kind = found.kind if found.kind in RUNNERS else None
    for place in ("accelerator", "cpu"):
        device = (kind or "accelerator") if place == "accelerator" else "cpu"
        runner = RUNNERS.get(device, "local-cuda")
        lacking = None if place == "cpu" or kind else "needs a GPU or an NPU that torch sees"
        enable = None if lacking is None else ELSEWHERE
        ranks = 2 if place == "cpu" else max(2, min(found.count, _most_ranks(runner)))
        few = None if place == "cpu" or not kind or found.count > 1 else "needs two devices or more"
        # Nobody knows how large a plug-in's device is.
        wide = place == "accelerator" and kind != "plugin"
        yield Trial(
            name=f"kernel on {device}",
            runner=runner,
            suite=_kernel(wide=wide),
            shown=_product_rate,
            fix=f"paceline run kernels/gemm --tier quick --runner {runner}; its job folder holds logs/cell-*.log",
            missing=lacking,
            enable=enable,
        )
        yield Trial(
            name=f"collective of {ranks if not lacking else 'all'} ranks on {device}",
            runner=runner,
            suite=_collective(ranks),
            shown=_reduced_rate,
            fix=_COLLECTIVE_FIX.get(
                device, "paceline run collectives/all-reduce --tier quick; docs/troubleshooting.md"
            ),
            missing=lacking or few,
            enable=enable,
        )
        yield Trial(
            name=f"training steps on {device}",
            runner=runner,
            suite=_training(),
            shown=lambda by: f"{format_quantity(_value(by, 'time_per_token'), 's')} a token",
            fix=f"paceline run training/precision --tier quick --runner {runner}",
            missing=lacking,
            enable=enable,
        )
        yield Trial(
            name=f"requests to the engine on {device}",
            runner=runner,
            suite=_serving(),
            shown=lambda by: f"first token after {format_quantity(_value(by, 'ttft_p90'), 's')}",
            fix=f"paceline run serving/schedulers --tier quick --runner {runner}",
            missing=lacking,
            enable=enable,
        )


def _most_ranks(runner: str) -> int:
    return int(load_runner(content.find_runner(runner)).model.max_ranks)


_COLLECTIVE_FIX = {
    "cuda": "NCCL_DEBUG=INFO paceline run collectives/all-reduce --tier quick --runner local-cuda; "
    "if it hangs, try NCCL_P2P_DISABLE=1, and in a container --shm-size or --ipc=host",
    "rocm": "NCCL_DEBUG=INFO paceline run collectives/all-reduce --tier quick --runner local-rocm; "
    "if it hangs, look for iommu=pt among the kernel's parameters",
    "npu": "paceline run collectives/all-reduce --tier quick --runner local-npu; "
    "hccn_tool -i 0 -link -g tells of links",
}


def _suite(family: str, baseline: str, metric: str, **parts: Any) -> dict[str, Any]:
    return {
        "suite": f"{family}/doctor",
        "version": 1,
        "family": family,
        "description": "A small point, to see that it works.",
        "baseline": baseline,
        "techniques": [baseline],
        "metrics": {metric: {"margin": 0.05}},
        **parts,
    }


def _kernel(*, wide: bool) -> dict[str, Any]:
    size, dtype = (4096, "bfloat16") if wide else (512, "float32")
    return _suite(
        "kernels",
        "torch-eager",
        "latency",
        workload={"op": "gemm"},
        zip=[{"m": [size], "n": [size], "k": [size]}],
        matrix={"dtype": [dtype]},
        protocol={"launches": 1, "max_seconds": 0.3, "warmup_seconds": 0.1},
    )


def _collective(ranks: int) -> dict[str, Any]:
    return _suite(
        "collectives",
        "native",
        "latency",
        workload={"op": "all_reduce", "payload": "gaussian"},
        matrix={"size_bytes": ["1MiB"], "ranks": [ranks]},
        protocol={"launches": 1, "max_seconds": 0.3, "warmup_seconds": 0.1},
    )


def _training() -> dict[str, Any]:
    # Two windows of twenty steps are the least from which a rate follows: the first one is warm-up.
    workload = {"op": "data_parallel", "data": "markov", "size": "nano", "batch": 8, "context": 16}
    return _suite(
        "training",
        "no-communication",
        "time_per_token",
        workload={**workload, "learning_rate": 0.01, "warmup_steps": 4, "proof": "brief"},
        matrix={"ranks": [1], "steps": [60]},
        protocol={"launches": 1},
    )


def _serving() -> dict[str, Any]:
    workload = {"op": "serve", "model": "small", "workload": "independent", "arrivals": "poisson"}
    return _suite(
        "serving",
        "orca",
        "ttft_p90",
        workload={**workload, "lengths": "lognormal"},
        matrix={"rate_per_s": [20], "requests": [4], "prompt_tokens": [32], "output_tokens": [8]},
        protocol={"launches": 1, "timeout": "60s"},
    )


def _value(by: Mapping[str, Measurement], metric: str) -> float:
    return float(by[metric].value or 0.0)


def _product_rate(by: Mapping[str, Measurement]) -> str:
    latency = by["latency"]
    m, n, k = (int(latency.params[name] or 0) for name in "mnk")
    rate = 2 * m * n * k / _value(by, "latency")
    return f"{m} × {n} × {k} in {latency.params['dtype']}: {format_quantity(rate, 'FLOP/s')}"


def _reduced_rate(by: Mapping[str, Measurement]) -> str:
    size = int(by["latency"].params["size_bytes"] or 0)
    seconds = _value(by, "latency")
    return f"1 MiB in {format_quantity(seconds, 's')}, {format_quantity(size / seconds, 'B/s')}"


def prove(
    *,
    say: Callable[[Proof], None],
    limit_s: float = LIMIT_S,
    run: Run | None = None,
    found: Portrait | None = None,
) -> ProofReport:
    """Look at this machine and prove what works on it.

    Args:
        say: Told each proof as it ends.
        limit_s: For everything; what does not fit is not run.
        run: Measures a suite; by default ``paceline run`` in a process of its own.
        found: The machine, where it was looked at already.
    """
    began = time.monotonic()
    machine = found or portrait.look()
    proofs = []
    for trial in trials(machine):
        left = limit_s - (time.monotonic() - began)
        proof = _prove(trial, machine, left, run or run_suite)
        say(proof)
        proofs.append(proof)
    return ProofReport(
        made=utc(),
        host_class=host_class(machine.host, machine.device or {"kind": "cpu"}),
        tool_version=metadata.version("paceline"),
        seconds=round(time.monotonic() - began, 1),
        facts=facts_of(machine),
        topology=machine.topology,
        proofs=proofs,
    )


def _prove(trial: Trial, machine: Portrait, left_s: float, run: Run) -> Proof:
    missing, enable = trial.missing, trial.enable
    if machine.missing:
        missing, enable = f"needs torch: {machine.missing}", "make setup"
    elif missing is None and (other := lease.holder()) is not None:
        missing, enable = f"needs the machine, which is held by {other.text()}", "wait until it ends"
    elif missing is None and left_s < LEAST_S:
        missing, enable = "needs more time than was left", "run it again: caches are warm then"
    if missing is not None:
        return Proof(name=trial.name, status="not run", detail=missing, fix=enable)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="paceline-prove-"))
    path = folder / "doctor.yaml"
    path.write_text(json.dumps(trial.suite))
    for number in range(TRIES):
        store = folder / f"results-{number}"
        code, said = run(path, trial.runner, store, min(PROOF_S, left_s - (time.monotonic() - began)))
        # that a server answers hangs on no time
        late = any(blames_client(m.reason) for m in _recorded(store))
        if not late or left_s - (time.monotonic() - began) < LEAST_S:
            break
    proof = _judged(trial, code, said, store, round(time.monotonic() - began, 1))
    if proof.status == "failed":
        return proof.model_copy(update={"fix": f"{proof.fix}; what it left behind: {folder}"})
    shutil.rmtree(folder, ignore_errors=True)
    return proof


def _judged(trial: Trial, code: int, said: str, store: Path, seconds: float) -> Proof:
    """Read what a run recorded."""
    lines = _recorded(store)
    right = {m.metric.name: m for m in lines if m.status == "ok"}
    if code == 0 and right:
        return Proof(name=trial.name, status="ok", detail=trial.shown(right), seconds=seconds)
    failures = grouped(m for m in lines if m.status != "ok")
    if failures and all(f.status in SOFT for f in failures):
        reason = failures[0].reason
        return Proof(name=trial.name, status="not run", detail=reason, seconds=seconds, fix="paceline doctor")
    detail = "; ".join(f"{f.status}: {f.reason}" for f in failures) or said or f"exit code {code}"
    return Proof(name=trial.name, status="failed", detail=detail, seconds=seconds, fix=trial.fix)


def _recorded(store: Path) -> list[Measurement]:
    return [m for r in load([store]).records for m in r.measurements] if store.is_dir() else []


def run_suite(path: Path, runner: str, store: Path, limit_s: float) -> tuple[int, str]:
    """Measure a suite with ``paceline run``, and end it with all that it started when the time is over."""
    command = [sys.executable, "-m", "paceline.cli", "run", str(path), "--runner", runner]
    process = subprocess.Popen(
        [*command, "--results", str(store), "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # As Ctrl-C does: the launcher and its ranks are ended in order, and what is there is kept.
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return 1, f"it did not end within {limit_s:.0f} s"
    lines = [line for line in said.splitlines() if line.strip()]
    wrong = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "")
    return process.returncode, wrong.removeprefix("error: ")


def facts_of(found: Portrait) -> dict[str, str]:
    """Return what a person looks for first on a new machine, by name; what is not known is left out."""
    host, device = found.host, found.device
    facts: dict[str, object] = {
        "processor": host.get("cpu"),
        "cores": host.get("usable_cores"),
        "memory": f"{host['memory_class_gib']} GiB" if host.get("memory_class_gib") else None,
        "NUMA nodes": host.get("numa_nodes"),
        "system": host.get("system"),
        "container": host.get("container"),
        "accelerators": f"{device.get('name')} × {found.count}" if found.kind else "none that torch sees",
        "driver": device.get("driver"),
        **{f"version of {name}": version for name, version in found.versions.items()},
        **_settings(device),
        "clocks can be locked": portrait.clock_text(device),
        "networks": "; ".join(f"{name} {text}" for name, text in found.networks.items())
        or "no RDMA device is shown by the kernel",
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


_SHOWN = (
    ("power limit", "power_limit_w", 1.0, "W"),
    ("power limit as delivered", "power_default_w", 1.0, "W"),
    ("clock of applications", "clock_set_hz", 1e-6, "MHz"),
    ("highest clock", "clock_max_hz", 1e-6, "MHz"),
)


def _settings(device: Mapping[str, Any]) -> dict[str, object]:
    """Return how accelerators are set: one text where all are alike."""
    devices = device.get("devices") or ()
    found: dict[str, object] = {}
    for name, key, scale, unit in _SHOWN:
        found[name] = _alike([f"{d[key] * scale:.0f} {unit}" for d in devices if d.get(key) is not None])
    for name, key in (("MIG", "mig"), ("ECC", "ecc"), ("persistence", "persistence")):
        found[name] = _alike([("on" if d[key] else "off") for d in devices if d.get(key) is not None])
    pcie = [
        f"generation {d['pcie_generation']} × {d['pcie_width']}" for d in devices if d.get("pcie_generation")
    ]
    found["PCIe"] = _alike(pcie)
    found["NVLinks"] = _alike([str(d["nvlinks"]) for d in devices if d.get("nvlinks") is not None])
    found["partition"] = _alike([str(d["partition"]) for d in devices if d.get("partition")])
    return found


def _alike(texts: list[str]) -> str | None:
    return ", ".join(dict.fromkeys(texts)) or None
