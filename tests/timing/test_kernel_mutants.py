"""Kernels that cheat are found out, each for its own reason; honest ones beside them pass, however unusual.

Every file of ``tests/mutants/kernels`` is one exploit, every file of ``tests/mutants/kernels_honest`` one kernel that
must not be flagged. All of them run in one job of real cells, next to ``torch-eager``, so that what one of them does to
the others would show.

Known limits, which no mutant shows because nothing would refuse it:

- Code in a cell that reads and writes raw memory (numpy's array protocol with an address) can change anything there. It
  learns no result, since none is there, but it may slow the cell's clock down by what the judge's clock allows: a fifth
  of a pass and half a millisecond, on a slow machine by up to three. Blocks of very short passes are weaker evidence.
- Frames can be had from ``sys._getframe`` through a computed name; torch itself calls it too often to refuse it.
- A finalizer that the garbage collector did not find may run outside the fences; whatever it replaces is found by the
  next call, whatever it computes came too early.
- C++ code writes files without telling Python: ``torch.save`` is refused by name, not by deed.
- Weights expanded into memory that ``__init__`` allocated count as extra memory, not as weights.
- A kernel that remembers draws and gains less than half is not refused by the passes on new inputs.
- A technique that compiles may keep threads, and a process that has left its parent is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from figures import Figures
from measured import fenced_runner, record_of

from paceline.base.techniques.technique import read_source
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, results_of

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "kernels").glob("*.py"))
HONEST = sorted((Path(__file__).parents[1] / "mutants" / "kernels_honest").glob("*.py"))
BASELINE = "torch-eager"
POINTS: Mapping[str, Mapping[str, int]] = {
    "gemm": {"m": 96, "n": 80, "k": 192},
    "add_rmsnorm": {"tokens": 24, "hidden": 96},
    "attention_decode": {"batch": 3, "context": 65, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "dequant_gemm": {"m": 5, "n": 24, "k": 64, "bits": 4, "group": 32},
}
TIMEOUTS = {"add_rmsnorm": "6s"}
"""Two kernels of this operation hang."""
PROTOCOL = {"launches": 1, "warmup": "none", "min_samples": 16, "max_samples": 16, "max_seconds": 90}
SAMPLES = {"add_rmsnorm": {"min_samples": 60, "max_samples": 60}}
"""More passes than its draws have variations."""

OUTSIDE = r"elements of (c|y|s|out) are outside the bound, first at"
UNWRITTEN = r"c holds NaN or infinity"
NEW_INPUTS = r"inputs that share nothing with earlier ones"
OWN_CLOCK = r"it replaced paceline\.families\.kernels\.core\.timing_process\.server\._perf_ns"
EXPECTED: Mapping[str, tuple[str, str]] = {
    "zeros": ("incorrect", OUTSIDE),
    "short-reduction": ("incorrect", OUTSIDE),
    "bfloat16": ("incorrect", OUTSIDE),
    "tensor-float": ("incorrect", OUTSIDE),
    "narrow-output": ("incorrect", OUTSIDE),
    "small-values-dropped": ("incorrect", OUTSIDE),
    "identity-for-the-norm": ("incorrect", OUTSIDE),
    "statistics-of-some": ("incorrect", OUTSIDE),
    "sampled-keys": ("incorrect", OUTSIDE),
    "strongest-keys": ("incorrect", OUTSIDE),
    "right-at-its-sizes": ("incorrect", OUTSIDE + r" .*\(.*k 1, m 1, n 1"),
    "right-at-one-magnitude": ("incorrect", OUTSIDE),
    "right-at-first": ("incorrect", r"timed call: .*" + OUTSIDE),
    "previous-output": ("incorrect", OUTSIDE),
    "cached-by-address": ("incorrect", OUTSIDE),
    "cached-by-corner": ("incorrect", OUTSIDE),
    "cached-by-content": ("ok", ""),
    "remembers-the-draws": ("refused", NEW_INPUTS),
    "undoes-the-scaling": ("refused", NEW_INPUTS),
    "looks-ahead": ("ok", ""),
    "leaves-calls-to-the-next": ("incorrect", r"written after its call had returned: its work was put off"),
    "unwritten-output": ("incorrect", UNWRITTEN),
    "first-call-only": ("incorrect", UNWRITTEN),
    "empty-output": ("incorrect", r"an output tensor was resized or replaced"),
    "resized-output": ("incorrect", r"an output tensor was resized or replaced"),
    "replaced-data": ("incorrect", r"an output tensor was resized or replaced"),
    "replaced-storage": ("incorrect", r"an output tensor was resized or replaced"),
    "transposed-output": ("incorrect", r"an output tensor was resized or replaced"),
    "torch-function": ("incorrect", r"an output tensor was resized or replaced"),
    "packs-a-subclass": ("refused", r"pack\(\) returned something that is not a plain tensor"),
    "hides-weights": ("ok", ""),
    "hides-weights-in-numpy": ("ok", ""),
    "corrupted-input": ("incorrect", r"the input 'a' was changed"),
    "patched-clock": ("refused", r"it replaced time\.perf_counter_ns"),
    "patched-clock-at-import": ("refused", r"while imported: it replaced time\.perf_counter_ns"),
    "patched-synchronize": ("refused", r"it replaced torch\.accelerator\.synchronize"),
    "patched-events": ("refused", r"it replaced torch\.cuda\.Event"),
    "patched-equal": ("refused", r"it replaced torch\.equal"),
    "patched-allclose": ("refused", r"it replaced torch\.allclose"),
    "patched-copy": ("refused", r"it replaced Tensor\.copy_"),
    "imports-the-cell": (
        "refused",
        r"line \d+: imports paceline\.families\.kernels\.core\.timing_process\.server",
    ),
    "finds-the-cell": (
        "refused",
        r"it replaced paceline\.families\.kernels\.core\.timing_process\.server\._perf_ns",
    ),
    "patched-clock-once": (
        "refused",
        r"it replaced paceline\.families\.kernels\.core\.timing_process\.server\._perf_ns",
    ),
    "changes-the-cells-methods": ("refused", r"it replaced .*WorkingSet\.changed_input"),
    "uses-sys-modules": ("refused", r"line \d+: imports sys"),
    "reads-frames": ("refused", r"line \d+: uses .*\.(tb_frame|f_back|f_locals)"),
    "reads-frames-by-name": ("refused", r"it read tb_frame"),
    "collects-objects": ("refused", r"it triggered gc\.get_objects"),
    "leaves-a-mode": ("refused", r"it changed the global setting torch function modes"),
    "overrides-an-operator": ("refused", r"line \d+: uses torch\.library\.Library"),
    "overrides-by-name": ("refused", r"it replaced the operator aten::equal"),
    "changes-threads": ("refused", r"it changed the global setting torch\.get_num_threads"),
    "borrows-threads": ("refused", r"\d threads after a call, 1 allowed"),
    "changes-precision": ("refused", r"it changed the global setting torch\.get_float32_matmul_precision"),
    "changes-dtype": ("refused", r"it changed the global setting torch\.get_default_dtype"),
    "changes-grad-mode": ("refused", r"it changed the global setting torch\.is_grad_enabled"),
    "flushes-denormals": ("refused", r"it changed the global setting torch\.set_flush_denormal"),
    "imports-threading": ("refused", r"line \d+: imports threading"),
    "leaves-a-thread": ("refused", r"it left a thread running after its call returned"),
    "keeps-a-raw-thread": ("refused", r"\d threads after a call, 1 allowed"),
    "defers-to-torchscript": ("refused", r"\d threads after a call, 1 allowed"),
    "compiles-while-timed": ("refused", r"it triggered os\.system"),
    "keeps-a-process": ("refused", r"a process of its own lives while calls are timed"),
    "forks": ("refused", r"it triggered os\.fork"),
    "swallows-the-refusal": ("refused", r"it triggered os\.system"),
    "imports-os": ("refused", r"line \d+: imports os"),
    "imports-ctypes": ("refused", r"line \d+: imports ctypes"),
    "imports-socket": ("refused", r"line \d+: imports socket"),
    "imports-subprocess": ("refused", r"line \d+: imports subprocess"),
    "evaluates": ("refused", r"line \d+: uses eval"),
    "executes": ("refused", r"line \d+: uses exec"),
    "writes-files": ("refused", r"it opened .* for writing"),
    "saves-tensors": ("refused", r"line \d+: uses torch\.save"),
    "leaves-by-exit": ("crashed", r"SystemExit: 0"),
    "leaves-by-exit-code": ("crashed", r"its process left with exit code 0 at 'run'"),
    "raises-anything": ("crashed", r"Anything"),
    "interrupts": ("crashed", r"KeyboardInterrupt"),
    "segfault": ("crashed", r"its process died of SIGSEGV at 'run'"),
    "raw-memory": ("crashed", r"its process died of SIGSEGV at 'run'"),
    "takes-all-memory": ("out_of_memory", r"can't allocate memory"),
    "hangs": ("timeout", r"no answer within .* s to 'run'"),
    "hangs-later": ("timeout", r"no answer within .* s to 'run'"),
}
"""Status and reason of each."""
BY_THE_CLOCK = frozenset(name for name, end in EXPECTED.items() if end[0] == "ok" or end[1] == NEW_INPUTS)
"""Whose end hangs on times: of passes on new inputs, or on none being below what this device allows."""


def write_suite(folder: Path, operation: str, techniques: list[str]) -> Path:
    document: dict[str, Any] = {
        "suite": f"kernels/mutants-{operation.replace('_', '-')}",
        "version": 1,
        "family": "kernels",
        "why": "Kernels that cheat must be found out.",
        "workload": {"op": operation, **POINTS[operation]},
        "baseline": BASELINE,
        "techniques": [BASELINE, *techniques],
        "matrix": {},
        "protocol": {**PROTOCOL, **SAMPLES.get(operation, {}), "timeout": TIMEOUTS.get(operation, "30s")},
        "metrics": {"latency": {}, "extra_memory": {}},
    }
    if operation == "dequant_gemm":
        document["metrics"]["weight_bytes"] = {}
    path = folder / f"{operation}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ConformanceResult]]:
    """Run all kernels and return the results by technique."""
    folder = tmp_path_factory.mktemp("kernels")
    files = [*MUTANTS, *HONEST]
    operations: dict[str, list[str]] = {}
    for name, operation in names_of(files):
        operations.setdefault(operation, []).append(name)
    suites = [load_suite(write_suite(folder, o, names), extra=files) for o, names in operations.items()]
    found: dict[str, list[ConformanceResult]] = {}
    for result in results_of(record_of(suites, folder, runner=str(fenced_runner(folder))), "kernels"):
        found.setdefault(result.technique, []).append(result)
    return found


@pytest.mark.measured
def test_the_only_call_of_a_pass_cannot_be_computed_before_the_clock(tmp_path: Path, figure: Figures) -> None:
    """What kept the tensors of earlier passes computed it in the untimed calls before, and only looked on the clock."""
    point = {"m": 768, "n": 512, "k": 768}  # more than any core's own cache holds: one call a pass
    mutant = Path(MUTANTS[0]).with_name("looks_ahead.py")
    document = yaml.safe_load(write_suite(tmp_path, "gemm", ["looks-ahead"]).read_text())
    document["workload"] |= point
    path = tmp_path / "large.yaml"
    path.write_text(yaml.safe_dump(document))
    record = record_of([load_suite(path, extra=[mutant])], tmp_path, runner=str(fenced_runner(tmp_path)))
    timed = [m for m in record.measurements if m.metric.name == "latency"]
    assert {m.label: m.status for m in timed} == {BASELINE: "ok", "looks-ahead": "ok"}
    seconds = {m.label: median(m.samples) for m in timed}
    ratio = seconds["looks-ahead"] / seconds[BASELINE]
    figure("time of what looks ahead over the baseline's", ratio, unit="ratio", least=0.7)


def names_of(files: list[Path]) -> list[tuple[str, str]]:
    sources = [s for p in files for s in read_source(p, module=f"user:{p.stem}")]
    return [(s.info.name, operation) for s in sources for operation in s.info.implements]


def test_every_mutant_has_an_expected_end() -> None:
    assert {name for name, _ in names_of(MUTANTS)} == set(EXPECTED)
    assert len(EXPECTED) >= 28
    assert len(HONEST) >= 15


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.measured if n in BY_THE_CLOCK else ()) for n in sorted(EXPECTED)],
)
def test_a_mutant_ends_for_its_own_reason(name: str, results: dict[str, list[ConformanceResult]]) -> None:
    status, reason = EXPECTED[name]
    for result in results[name]:
        assert result.status == status, result.reason
        assert re.search(reason, result.reason or ""), result.reason


@pytest.mark.measured
@pytest.mark.parametrize("name", [name for name, _ in names_of(HONEST)])
def test_an_honest_kernel_passes(name: str, results: dict[str, list[ConformanceResult]]) -> None:
    assert [(r.status, r.reason) for r in results[name]] == [("ok", None)]


@pytest.mark.parametrize("name", ["hides-weights", "hides-weights-in-numpy", "packs-transposed"])
def test_expanded_weights_count_wherever_they_are_kept(
    name: str, results: dict[str, list[ConformanceResult]]
) -> None:
    point = POINTS["dequant_gemm"]
    assert results[name][0].measured["weight_bytes"] >= point["n"] * point["k"] * 4


def test_notes_made_while_packing_are_no_weights(results: dict[str, list[ConformanceResult]]) -> None:
    plain = results[BASELINE]
    (expected,) = [r.measured["weight_bytes"] for r in plain if r.operation == "dequant_gemm"]
    assert results["remembers-when-packing"][0].measured["weight_bytes"] == expected


@pytest.mark.measured
def test_nobody_harmed_the_baseline(results: dict[str, list[ConformanceResult]]) -> None:
    assert len(results[BASELINE]) == len(POINTS)
    assert {r.status for r in results[BASELINE]} == {"ok"}
