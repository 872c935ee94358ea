"""Kernels in KernelBench's layout: what fools a benchmark is refused for its own reason, and honest ones pass.

All of them run in one job of real processes beside the reference, so that what one of them does to others would show.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import pytest
from figures import Figures
from foreign_kernels import HONEST, REFERENCE, WHOLE, WRONG, solution
from measured import fenced_runner, record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.sandbox.bubblewrap import UNISOLATED, available
from paceline.workflows.conformance import ConformanceResult, results_of
from paceline.workflows.foreign_kernels import Compared, read_candidates, suite_of, write_all

PROTOCOL = {
    "launches": 1,
    "warmup": "none",
    "min_samples": 16,
    "max_samples": 16,
    "max_seconds": 60,
    "timeout": "60s",
}


def results(compared: Compared, folder: Path) -> dict[str, ConformanceResult]:
    """Judge candidates behind the fences, without a sandbox."""
    record = record_of_candidates(compared, folder, str(fenced_runner(folder)))
    return {r.technique: r for r in results_of(record, "kernels")}


def record_of_candidates(compared: Compared, folder: Path, runner: str) -> RunRecord:
    suite = suite_of(compared, dtype="float32", threads=1, margin=None, timeout="60s") | {
        "protocol": PROTOCOL
    }
    path, files = write_all(folder, suite, compared)
    return record_of([load_suite(path, extra=files)], folder, runner=runner)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    folder = tmp_path_factory.mktemp("kernels-of-others")
    texts = {name: solution(body) for name, (body, *_) in WRONG.items()}
    texts |= {name: solution(body) for name, body in HONEST.items()}
    texts |= {name: text for name, (text, *_) in WHOLE.items()}
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.py")
        paths[-1].write_text(text)
    reference = folder / "softmax.py"
    reference.write_text(REFERENCE.lstrip())
    return results(read_candidates(reference, paths, None), folder)


WITHOUT_EFFECT = (
    "by-content",
    "patches-the-clock",
    "patches-events",
    "patches-the-wait",
    "lowers-the-precision",
)
"""What the fences refuse and a sandbox lets be: no clock, event or setting of its own decides there."""
NOTHING_THERE = {"opens-files": "FileNotFoundError", "finds-the-reference": "no attribute 'Model'"}


@pytest.mark.measured
def test_in_a_sandbox_the_same_has_no_effect_or_finds_nothing(tmp_path: Path, figure: Figures) -> None:
    kind, reason = available("auto")
    if kind == UNISOLATED:
        pytest.skip(reason)
    texts = {name: solution(WRONG[name][0]) for name in WITHOUT_EFFECT if name in WRONG}
    texts |= {name: WHOLE[name][0] for name in (*WITHOUT_EFFECT, *NOTHING_THERE) if name in WHOLE}
    texts |= {"same": solution(HONEST["same"])}
    assert {*WITHOUT_EFFECT, *NOTHING_THERE} <= texts.keys()
    reference = tmp_path / "softmax.py"
    reference.write_text(REFERENCE.lstrip())
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    paths = [tmp_path / f"{name}.py" for name in texts]
    record = record_of_candidates(read_candidates(reference, paths, None), tmp_path, "local-cpu")
    found = {m.label: m for m in record.measurements if m.status != "ok" or m.metric.name == "latency"}
    for name, reason in NOTHING_THERE.items():
        assert found[name].status == "crashed" and reason in (found[name].reason or "")
    honest_s = median(found["same"].samples)
    for name in WITHOUT_EFFECT:
        assert found[name].status == "ok", found[name].reason
        assert found[name].isolation in ("bubblewrap", "user-namespaces")
        figure(
            f"{name} over an honest kernel", median(found[name].samples) / honest_s, unit="ratio", least=0.6
        )


def test_there_are_enough_of_both_kinds() -> None:
    assert len(WRONG) + len(WHOLE) >= 12
    assert len(HONEST) >= 10


@pytest.mark.parametrize("name", [*WRONG, *WHOLE])
def test_what_fools_a_benchmark_is_refused_for_its_own_reason(
    name: str, found: dict[str, ConformanceResult]
) -> None:
    _, status, reason = (WRONG | WHOLE)[name]
    assert found[name].status == status, found[name].reason
    assert re.search(reason, found[name].reason or ""), found[name].reason


@pytest.mark.parametrize("name", ["reference", *HONEST])
def test_an_honest_kernel_passes(name: str, found: dict[str, ConformanceResult]) -> None:
    assert (found[name].status, found[name].reason) == ("ok", None)


TWO_RESULTS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x, y):
        z = torch.tanh(x + y) * self.scale
        return z, z.argmax(dim=1)


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
SOLVES_TWO = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x, y):
        z = torch.add(x, y).tanh_().mul_(self.scale)
        return RETURNED
"""
RETURNED = {
    "a-tuple": ("z, z.max(dim=1).indices", "ok", None),
    "a-list": ("[z, z.argmax(dim=1)]", "ok", None),
    "one-alone": ("z", "incorrect", "returned 1 output, the reference 2"),
    "other-indices": ("z, z.argmin(dim=1)", "incorrect", "64 of 64 elements of output 1 differ"),
    "numbers-for-indices": (
        "z, z.argmax(dim=1).float()",
        "incorrect",
        "output 1 is of torch.float32, not torch.int64",
    ),
    "the-other-weights": (
        "z / self.scale, z.argmax(dim=1)",
        "incorrect",
        "of output 0 are outside the bound",
    ),
}
"""Name → what is returned, the status, and the reason."""


def test_of_several_results_each_is_judged_and_indices_exactly(tmp_path: Path) -> None:
    reference = tmp_path / "two.py"
    reference.write_text(TWO_RESULTS)
    paths = [tmp_path / f"{name}.py" for name in RETURNED]
    for path in paths:
        path.write_text(SOLVES_TWO.replace("RETURNED", RETURNED[path.stem][0]))
    found = results(read_candidates(reference, paths, None), tmp_path)
    for name, (_, status, reason) in RETURNED.items():
        assert found[name].status == status, found[name].reason
        assert reason is None or reason in (found[name].reason or "")


DEFINITION = {
    "name": "scaled_add",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 48}},
    "inputs": {
        "a": {"shape": ["M", "N"], "dtype": "float32"},
        "b": {"shape": ["M", "N"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"c": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "import torch\n\n"
    "def run(a, b, scale):\n    return a.to(torch.float32) + scale * b.to(torch.float32)\n",
}
WORKLOADS = [
    {"definition": "scaled_add", "workload": {"uuid": str(m), "axes": {"M": m}, "inputs": {
        "a": {"type": "random"}, "b": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}}}}
    for m in (7, 64)
]  # fmt: skip


FLASHINFER_WRONG = {
    "plain": "def run(a, b, scale):\n    return a + b\n",
    "zeros": "import torch\n\ndef run(a, b, scale):\n    return torch.zeros_like(a)\n",
    "returns_an_input": "def run(a, b, scale):\n    return a\n",
    "by_address": "KEPT = {}\n\ndef run(a, b, scale):\n"
    "    return KEPT.setdefault(a.data_ptr(), a + b * scale)\n",
    "in_place": "def run(a, b, scale):\n    return a.add_(b, alpha=scale)\n",
    "fills_nothing": "def run(a, b, scale, c):\n    return None\n",
}
"""Name → what fools a benchmark of flashinfer-bench's layout."""


def flashinfer_solution(name: str, text: str, **spec: object) -> dict[str, object]:
    return {
        "name": name,
        "definition": "scaled_add",
        "spec": {"language": "python", "entry_point": "main.py::run", **spec},
        "sources": [{"path": "main.py", "content": text}],
    }


def test_solutions_of_flashinfer_bench_are_judged_at_every_workload(tmp_path: Path) -> None:
    files = {
        "definition.json": json.dumps(DEFINITION),
        "workloads.jsonl": "\n".join(map(json.dumps, WORKLOADS)),
        "fills.json": json.dumps(
            flashinfer_solution(
                "fills",
                "import torch\n\ndef run(a, b, scale, c):\n    torch.add(a, b, alpha=scale, out=c)\n",
            )
        ),
        "fills_too.py": "import torch\n\ndef run(a, b, scale, c):\n    torch.add(a, b, alpha=scale, out=c)\n",
        "returns.json": json.dumps(
            flashinfer_solution(
                "returns",
                "def run(a, b, scale):\n    return a + b * scale\n",
                destination_passing_style=False,
            )
        ),
        **{f"{name}.py": text for name, text in FLASHINFER_WRONG.items()},
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    solutions = [tmp_path / name for name in files if name not in ("definition.json", "workloads.jsonl")]
    compared = read_candidates(tmp_path / "definition.json", solutions, tmp_path / "workloads.jsonl")
    assert compared.num_workloads == 2
    suite = suite_of(compared, dtype="float32", threads=1, margin=None, timeout="60s") | {
        "protocol": PROTOCOL
    }
    path, written = write_all(tmp_path, suite, compared)
    record = record_of([load_suite(path, extra=written)], tmp_path)
    statuses = {(m.label, m.params["workload"]): m.status for m in record.measurements}
    for workload in (0, 1):
        assert statuses["reference", workload] == "ok"
        for name in ("fills", "fills-too", "returns"):
            assert statuses[name, workload] == "ok", name
        for name in FLASHINFER_WRONG:
            assert statuses[name.replace("_", "-"), workload] == "incorrect", name
    told = {(m.correctness or {})["oracle"] for m in record.measurements if "oracle" in (m.correctness or {})}
    assert told == {
        "the reference's own result, within 0.0001 absolute and relative: it cannot be computed in float64"
    }
