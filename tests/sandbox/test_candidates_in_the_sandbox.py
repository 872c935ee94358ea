"""Kernels that attack the clock fail, each for its reason, and honest ones that look unusual pass, in one sandbox."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_operators import OPERATORS

from paceline.base.techniques.technique import read_source
from paceline.families.kernels.core.gate import gate
from paceline.families.kernels.core.point import Point
from paceline.families.kernels.core.sandboxed import process
from paceline.families.kernels.core.sandboxed.candidate import SandboxedCandidate
from paceline.families.kernels.core.sandboxed.handover import Handover
from paceline.families.kernels.core.sandboxed.process import SandboxedProcess
from paceline.worker.ranks.session import Case, CaseError
from paceline.worker.sandbox import stopping
from paceline.worker.sandbox.bubblewrap import BUBBLEWRAP, UNISOLATED, available
from paceline.worker.sandbox.processor_timer import ProcessorTimer

FILES = Path(__file__).parents[1] / "mutants" / "sandbox"
PARAMS = {
    "op": "gemm",
    "m": 24,
    "n": 20,
    "k": 33,
    "dtype": "float32",
    "threads": 1,
    "reference_timer": "none",
}
PASSES, SETS = 6, 64
TIMEOUT_S = 120.0
ATTACKS: Mapping[str, tuple[str, str]] = {
    "memoises-draws": ("ok", ""),
    "looks-at-inputs-early": ("ok", ""),
    "stops-its-clocks": ("ok", ""),
    "takes-frames": ("ok", ""),
    "burns-beside-others": ("ok", ""),
    "shrinks-shared-memory": ("ok", ""),
    "does-without-the-harness": ("ok", ""),
    "preloads-a-library": ("ok", ""),
    "skips-when-unwatched": ("incorrect", r"while memory is measured: c holds NaN or infinity"),
    "computes-together": (
        "incorrect",
        r"calls of a pass are computed together|timed call: .* outside the bound",
    ),
    "computes-together-later": ("ok", ""),
    "touches-outputs-first": ("incorrect", r"calls of a pass are computed together: call \d+ was not done"),
    "touches-the-last-output": ("incorrect", r"calls of a pass are computed together: call \d+ was not done"),
    "computes-together-in-a-thread": (
        "incorrect",
        r"calls of a pass are computed together|timed call: .* outside the bound",
    ),
    "computes-later": ("incorrect", r"timed call: c holds NaN or infinity"),
    "computes-by-a-timer": ("incorrect", r"timed call: c holds NaN or infinity"),
    "wrong-in-one-element": ("incorrect", r"timed call: 1 of 480 elements of c are outside the bound"),
    "reuses-freed-memory": ("incorrect", r"timed call: .* outside the bound"),
    "is-lazy": ("incorrect", r"timed call: c holds NaN or infinity"),
    "replaces-operators": ("incorrect", r"timed call: .* outside the bound|every element"),
    "collects-objects": ("incorrect", r"timed call: .* outside the bound"),
    "forks-in-a-pass": ("refused", r"it starts a process of its own while calls are timed"),
    "spawns-in-a-pass": ("refused", r"it starts a process of its own while calls are timed"),
    "hops-between-processes": ("refused", r"it starts a process of its own while calls are timed"),
    "answers-by-itself": ("refused", r"no answer to what was asked"),
    "leaves-a-daemon": ("refused", r"it starts a process of its own while calls are timed"),
    "left-a-daemon": ("refused", r"a process of its own lives while calls are timed"),
    "changes-inputs": ("crashed", r"its process died of SIGSEGV at 'call'"),
    "leaves": ("crashed", r"its process left with exit code 0 at 'call'"),
    "writes-past-the-end": ("crashed", r"its process died of SIGSEGV at 'call'"),
}

NO_ANSWER = ("refused", r"no answer to what was asked")
NOT_PERMITTED = ("crashed", r"PermissionError: \[Errno 1\]")
ON_THE_JUDGE: Mapping[str, tuple[str, str]] = {
    "wakes-by-a-timer": NOT_PERMITTED,
    "wakes-by-a-descriptor": NOT_PERMITTED,
    "forgets-its-peak": ("crashed", r"OSError: \[Errno 30\] .*clear_refs"),
    "asks-without-end": ("timeout", r"no answer within 10 s to 'run'"),
    **dict.fromkeys(("fails-in-silence", "says-huge-numbers", "says-words"), NO_ANSWER),
    **dict.fromkeys(("says-nothing", "owes-memory"), NO_ANSWER),
}
"""Of the file that reaches for the judge; each has a sandbox of its own."""

CHANGE_THEIR_PROCESS = ("does-without-the-harness", "preloads-a-library", "replaces-operators")
"""What would make the next attacks in the same process others than they are."""


def case(file: str, name: str) -> Case:
    """Return one technique of a file as the plan names it."""
    names: dict[str, Any] = {
        "case_id": name,
        "label": name,
        "technique": name,
        "sha256": "",
        "role": "technique",
    }
    return Case(**names, module=f"user:{file}", options={})


class Bench:
    """A judge with an empty candidate, and a sandbox for each file that is kept while its candidates behave."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.point = Point(
            operator=OPERATORS["gemm"], params=PARAMS, dtype=torch.float32, device="cpu", timeout_s=TIMEOUT_S
        )
        self.draws = self.point.draw([1, 2])
        self.running: dict[str, SandboxedProcess] = {}
        self.idle = self.started(case("unusual", "by-numpy"), {"idle": True})

    def started(self, of: Case, load: dict[str, Any]) -> SandboxedProcess:
        log = self.folder / "log"
        return process.start(self.kind, of, threads=1, log=log, timeout_s=300, load=load)

    def loaded(self, file: str, name: str) -> SandboxedProcess:
        found = self.running.get(file)
        if found is None or found.ended:
            found = self.running[file] = self.started(case(file, name), {})
        found.ask({"do": "load", "technique": name}, timeout_s=TIMEOUT_S)
        return found

    def measured(self, file: str, name: str, sets: int = SETS) -> SandboxedCandidate:
        """Prove a candidate, and observe some passes of it."""
        found = self.loaded(file, name)
        checks = gate(self.point, found, [1, 2], brief=True)
        session = SimpleNamespace(
            fixed_seed=False, begin=lambda *a: None, device=SimpleNamespace(torch_type="cpu")
        )
        candidate = SandboxedCandidate(
            idle=lambda: self.idle,
            session=session,
            block=SimpleNamespace(params=PARAMS, protocol={}, block="b"),
            case=case(file, name),
            process=found,
            point=self.point,
            draws=self.draws,
            rng=random.Random(1),
            num_checks=checks,
        )
        candidate.hot = True
        candidate.allocate(sets)
        for _ in range(PASSES):
            assert candidate._observe()[0] > 0
        while candidate.interruptions.wanted:
            candidate._interrupt()
        candidate._memory()
        return candidate

    def end(self) -> None:
        for found in (self.idle, *self.running.values()):
            found.end()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    kind, reason = available()
    if kind == UNISOLATED:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("bench")
    (folder / "user").mkdir()
    for name in ("unusual", "attacks_of_the_clock", "attacks_of_the_judge"):
        (folder / "user" / f"{name}.py").write_bytes((FILES / f"{name}.py").read_bytes())
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        found = Bench(folder, kind)
        yield found
        found.end()


@pytest.mark.parametrize(
    "name", [s.info.name for s in read_source(FILES / "unusual.py", module="user:unusual")]
)
def test_an_honest_candidate_passes_however_unusual_it_is(bench: Bench, name: str) -> None:
    candidate = bench.measured("unusual", name)
    assert candidate.num_calls >= SETS * PASSES
    assert candidate.interruptions.num_passes > 0
    assert candidate.worst_error < 1e-5


def test_the_tensors_of_a_pass_are_no_memory_of_the_candidates(bench: Bench) -> None:
    candidate = bench.measured("unusual", "by-numpy")
    kept = candidate.process.ask({"do": "trim"}, timeout_s=TIMEOUT_S)["kept_bytes"]
    assert kept < sum(s.num_bytes for specs in bench.point.specs for s in specs)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_the_clock_fails_for_its_own_reason_or_has_no_effect(bench: Bench, name: str) -> None:
    status, reason = ATTACKS[name]
    try:
        hold_against(bench, name, status, reason)
    finally:
        if name in CHANGE_THEIR_PROCESS:
            bench.running.pop("attacks_of_the_clock").end()


@pytest.mark.parametrize("name", ON_THE_JUDGE)
def test_an_attack_on_the_judge_ends_its_candidate_and_not_the_judge(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, reason = ON_THE_JUDGE[name]
    if status == "timeout":
        monkeypatch.setattr(bench, "point", replace(bench.point, timeout_s=10.0))
    try:
        with pytest.raises(CaseError) as caught:
            bench.measured("attacks_of_the_judge", name)
    finally:
        bench.running.pop("attacks_of_the_judge").end()
    assert caught.value.status == status
    assert re.search(reason, caught.value.reason)


def test_whoever_is_continued_by_another_than_its_judge_is_refused(bench: Bench) -> None:
    candidate = bench.measured("attacks_of_the_clock", "burns-beside-others")
    found = candidate.process
    draws = [candidate._draw() for _ in range(candidate.num_sets)]

    def run_on() -> None:
        before_ns = stopping.cpu_ns(found.pid)
        stopping.go_on(found.pid)
        while stopping.cpu_ns(found.pid) - before_ns <= 2 * stopping.LEAVING_NS:
            pass

    with pytest.raises(CaseError, match="it ran while it was stopped") as caught:
        candidate._shared.run(draws, flush=run_on)
    assert caught.value.status == "refused" and found.ended


def test_each_sandbox_has_a_user_of_its_own_whose_limits_are_nobody_elses(bench: Bench) -> None:
    if bench.kind != BUBBLEWRAP:
        pytest.skip("another user can be had by root alone")
    other = bench.loaded("unusual", "by-numpy")
    users = {Path("/proc", str(p.pid)).stat().st_uid for p in (bench.idle, other)}
    assert len(users) == 2
    assert not users & {0, os.getuid()}


def hold_against(bench: Bench, name: str, status: str, reason: str) -> None:
    """Measure an attack, and see that it ends as it has to."""
    if status == "ok":
        assert bench.measured("attacks_of_the_clock", name).num_calls >= SETS * PASSES
        return
    with pytest.raises(CaseError) as caught:
        bench.measured("attacks_of_the_clock", name)
    assert caught.value.status == status
    assert re.search(reason, caught.value.reason)


def test_whoever_waits_until_its_judge_has_looked_often_enough_waits_in_vain(bench: Bench) -> None:
    # Enough passes were stopped, and it was right in all of them.
    candidate = bench.measured("attacks_of_the_clock", "computes-together-later")
    assert not candidate.interruptions.wanted
    with pytest.raises(CaseError, match=ATTACKS["computes-together"][1]) as caught:
        for _ in range(1000):
            candidate._observe()
    assert caught.value.status == "incorrect"


def test_a_candidate_that_is_not_asked_does_not_run(bench: Bench) -> None:
    found = bench.measured("attacks_of_the_clock", "burns-beside-others").process
    # It was told to stop when it had answered; its threads may take a moment.
    stopping.stop(found.pid)
    before = stopping.cpu_ns(found.pid)
    bench.measured("unusual", "by-numpy")
    assert stopping.cpu_ns(found.pid) == before
    found.end()


def test_the_kernel_stops_a_process_after_so_much_processor_time(bench: Bench) -> None:
    program = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(program) as busy:
        try:
            stopping.stop(busy.pid)
            before = stopping.cpu_ns(busy.pid)
            timer = ProcessorTimer(busy.pid, 3_000_000)
            stopping.go_on(busy.pid)
            while not stopping.is_stopped(busy.pid):
                pass
            timer.close()
            assert stopping.cpu_ns(busy.pid) - before >= 3_000_000
        finally:
            busy.kill()


def test_where_the_kernel_does_not_count_the_judges_clock_stops_a_candidate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_timers", lambda pid, after_ns: None)
    candidate = bench.measured("unusual", "by-numpy")
    assert candidate.interruptions.num_passes > 0
    with pytest.raises(CaseError, match=ATTACKS["computes-together"][1]):
        # On a busy machine a stop seldom comes in time: again until one does.
        for _ in range(20):
            bench.measured("attacks_of_the_clock", "computes-together")


def test_every_attack_has_its_reason() -> None:
    for file, reasons in (("attacks_of_the_clock", ATTACKS), ("attacks_of_the_judge", ON_THE_JUDGE)):
        sources = read_source(FILES / f"{file}.py", module=f"user:{file}")
        assert {s.info.name for s in sources} == set(reasons)


def test_whoever_computes_on_more_threads_than_allowed_gains_nothing() -> None:
    handover = Handover()
    for _ in range(9):
        handover.add(100_000, 20_000)
    # A millisecond by the clock, and three of processor time: three threads for a point that gives one.
    assert handover.of_a_pass(1_100_000, 3_020_000, 1) == 3_000_000
    assert handover.of_a_pass(1_100_000, 3_020_000, 4) == 1_000_000


def test_a_pass_is_never_shorter_than_the_handover_is_known_to() -> None:
    handover = Handover()
    for wall in (90_000, 95_000, 100_000, 105_000, 110_000, 100_000, 100_000):
        handover.add(wall, 0)
    low, high = handover.interval()
    assert handover.of_a_pass(100_000, 0, 1) == handover.resolution_ns() == (high - low) / 2 > 0
    assert handover.describe()["empty_passes"] == 7
