"""Known-wrong techniques are refused, each for its own reason; the shipped ones pass beside them.

Every file of ``tests/mutants/collectives`` is one exploit. All of them run in one job of real process groups, next to
the native technique, so that what one of them does to the others would show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from measured import record_of

from paceline.base.techniques.technique import read_source
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, results_of

MUTANTS = Path(__file__).parents[1] / "mutants" / "collectives"
FILES = sorted(MUTANTS.glob("*.py"))
RANKS = 3
NUM_OPERATIONS = 6
"""Operations that some mutant implements, without mixing, for which a backend has nothing."""
PROTOCOL = {
    "launches": 1,
    "warmup": "none",
    "min_samples": 80,
    "max_samples": 80,
    # A busy machine makes as many calls: some mutants are wrong only after those of the gate.
    "max_seconds": 40,
    "kernel_calls": 0,
    "timeout": "120s",
}
"""Enough timed calls for inputs to come again: 4 draws, 6 scales."""

NEEDS_NAMESPACES = {"hides-behind-noise", "shares-memory-by-name"}
"""Only the kernel's counters tell, of an interface that nobody else uses; tests/netns has them."""
DIFFER = r"elements differ, first at"
STALE = r"outputs are not mixtures of the inputs|a row of mixing weights sums to"
"""The second where what was sent long ago is this call's own draw at another scale."""
EXPECTED: Mapping[str, tuple[str, str]] = {
    "zeros": ("incorrect", DIFFER),
    "identity": ("incorrect", DIFFER),
    "constant": ("incorrect", DIFFER),
    "nan": ("incorrect", DIFFER + r".* nan instead of"),
    "dropped-tail": ("incorrect", DIFFER),
    "odd-count": ("incorrect", DIFFER),
    "swapped-ranks": ("incorrect", DIFFER),
    "swapped-shares": ("incorrect", DIFFER),
    "wrong-root": ("incorrect", r"root 1, call 1: .*" + DIFFER),
    "wrong-root-reduce": ("incorrect", r"root 0, call 1: .*" + DIFFER),
    "skipped-rank": ("incorrect", DIFFER),
    "double-reduction": ("incorrect", DIFFER),
    "reduced-precision": ("incorrect", DIFFER),
    "tiny-rank-difference": ("incorrect", r"rank 1: .*" + DIFFER),
    "corrupted-input": ("incorrect", r"the input 'send' was changed"),
    "replaced-buffer": ("incorrect", r"a buffer was resized or replaced"),
    "previous-output": ("incorrect", r"call 2: .*" + DIFFER),
    "cached-output": ("incorrect", r"call 2: .*" + DIFFER),
    "cached-by-address": ("incorrect", r"call 2: .*" + DIFFER),
    "cached-by-content": ("refused", r"timed call: .* bytes passed through the communicator"),
    "right-at-first": ("incorrect", r"timed call: "),
    "right-at-one-magnitude": ("incorrect", r"gaussian × (0\.001|1000)|elements of integers"),
    "right-at-even-counts": ("incorrect", r"\b(1|3|7) elements of integers"),
    "patched-clock": ("refused", r"it replaced time\.perf_counter_ns"),
    "patched-clock-at-import": ("refused", r"while imported: it replaced time\."),
    "patched-oracle": ("refused", r"it replaced torch\.equal"),
    "changed-threads": ("refused", r"it changed the global setting torch\.get_num_threads"),
    "reads-the-oracle": ("refused", r"line \d+: uses .*\.(tb_frame|f_back|f_locals)"),
    "imports-distributed": ("refused", r"line \d+: imports torch\.distributed"),
    "finds-distributed": ("refused", r"it called torch\.distributed\.all_reduce instead of its communicator"),
    "finds-distributed-inside": ("refused", r"timed call: 0 bytes passed through the communicator"),
    "hides-behind-one-byte": ("refused", r"timed call: 4 bytes passed through the communicator"),
    "uses-the-carrier": ("refused", r"line \d+: uses .*\._transport"),
    "resets-counters": ("refused", r"line \d+: uses .*\.counters"),
    "imports-socket": ("refused", r"line \d+: imports socket"),
    "writes-files": ("refused", r"it opened .* for writing"),
    "shares-memory": ("refused", r"line \d+: uses torch\.from_file"),
    "imports-threading": ("refused", r"line \d+: imports threading"),
    "leaves-a-thread": ("refused", r"it left a thread running after its call returned"),
    "writes-events-in-a-thread": (
        "refused",
        r"in a thread of its own it opened '.*events-\d\.jsonl' for writing",
    ),
    "writes-events-in-a-raw-thread": (
        "refused",
        r"in a thread of its own it opened '.*events-\d\.jsonl' for writing",
    ),
    "shares-memory-by-name": (
        "refused",
        r"timed call: \d+ bytes a call left on the ranks' interface, the communicator counted \d+ and the result needs",
    ),
    "handles-a-signal": ("refused", r"it changed the global setting signal\.signal"),
    "acts-for-the-collector": ("refused", r"it changed the global setting gc\.callbacks"),
    "works-in-reset": ("incorrect", r"timed call: .*elements are outside the bound"),
    "leaves-a-transfer": ("incorrect", r"1 transfers were not waited for"),
    "lies-about-cost": ("incorrect", r"wire_bytes is \d+\.\d, formula \d+"),
    "hides-behind-noise": ("refused", r"the kernel carried \d+ bytes a call, the communicator \d+"),
    "undeclared-loss": ("refused", r"a lossy technique declares error"),
    "declares-any-loss": ("refused", r"bounded needs max_relative_l2 of at most 0\.25"),
    "lossy-skips-rank": ("incorrect", r"the mean of 64 calls does not approach the truth"),
    "lossy-is-biased": ("incorrect", r"the mean of 64 calls does not approach the truth"),
    "mixes-stale": ("incorrect", rf"timed call: rank 0: ({STALE})"),
    "lossy-ranks-disagree": ("incorrect", r"ranks end with different results"),
}
"""Status and reason of each."""


def write_suite(folder: Path, operation: str, techniques: list[str]) -> Path:
    baseline = "allreduce-mean" if operation == "mix" else "native"
    document: dict[str, Any] = {
        "suite": f"collectives/mutants-{operation.replace('_', '-')}",
        "version": 1,
        "family": "collectives",
        "why": "The gate must refuse what is known to be wrong.",
        "workload": {"op": operation, "payload": "gaussian"},
        "baseline": baseline,
        "techniques": [baseline, *techniques],
        "matrix": {"size_bytes": [12_300], "ranks": [RANKS]},
        "protocol": PROTOCOL,
    }
    path = folder / f"{operation}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ConformanceResult]]:
    """Run all mutants and return the results by technique."""
    folder = tmp_path_factory.mktemp("mutants")
    operations: dict[str, list[str]] = {}
    for path in FILES:
        for source in read_source(path, module=f"user:{path.stem}"):
            for operation in source.info.implements:
                if source.info.name not in NEEDS_NAMESPACES:
                    operations.setdefault(operation, []).append(source.info.name)
    suites = [
        load_suite(write_suite(folder, operation, names), extra=FILES)
        for operation, names in operations.items()
    ]
    found: dict[str, list[ConformanceResult]] = {}
    for result in results_of(record_of(suites, folder), "collectives"):
        found.setdefault(result.technique, []).append(result)
    return found


def test_every_mutant_has_an_expected_end() -> None:
    names = {s.info.name for p in FILES for s in read_source(p, module=f"user:{p.stem}")}
    assert names == set(EXPECTED)
    assert len(names) >= 18


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - NEEDS_NAMESPACES))
def test_a_mutant_is_refused_for_its_own_reason(
    name: str, results: dict[str, list[ConformanceResult]]
) -> None:

    status, reason = EXPECTED[name]
    for result in results[name]:
        said = result.problem if status == "ok" else result.reason
        assert result.status == status, said
        assert said is not None
        assert re.search(reason, said), said


def test_an_honest_technique_beside_them_passes(results: dict[str, list[ConformanceResult]]) -> None:
    assert len(results["native"]) == NUM_OPERATIONS
    assert len(results["allreduce-mean"]) == 1
    assert not [r.problem for name in ("native", "allreduce-mean") for r in results[name] if r.problem]
