"""Kernels end to end on the stub: timing processes, the device's events, eager operators and interpreted Triton."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from outcomes import median_of, troubles

from paceline.records.store.folder import RunRecord

Python = Callable[..., str]
RunSuite = Callable[..., RunRecord]
PROTOCOL = "{launches: 1, warmup: none, min_samples: 3, max_samples: 4, max_seconds: 0.05, timeout: 120s}"


def test_eager_kernels_are_right_and_timed_by_the_device(run_suite: RunSuite) -> None:
    record = run_suite(
        f"""
        suite: kernels/stub-stream
        version: 1
        family: kernels
        description: Copies on the stub, one of which keeps the device busy for 10 ms.
        workload: {{op: copy, size_bytes: 1MiB}}
        baseline: torch-eager
        techniques: [torch-eager, sleepy-copy]
        protocol: {PROTOCOL}
        """,
        "sleepy_copy",
    )
    assert troubles(record) == []
    # Its launch takes some microseconds: this is what the device took.
    assert median_of(record, "sleepy-copy", "latency") >= 10e-3
    (eager,) = [m for m in record.measurements if (m.label, m.metric.name) == ("torch-eager", "latency")]
    assert min(eager.samples) < 10e-3


def test_narrow_products_are_tried_in_the_type_that_the_device_has(python: Python) -> None:
    # Where the host's kernel of the other float8 type fails, it does when the stream comes to it, after its launch went
    # well; some hosts have one (oneDNN on an AMD EPYC).
    python("""
        from paceline.families.kernels.api import float8
        assert float8.missing(torch.device("stub")) is None
        assert float8.native(torch.device("stub")) == torch.float8_e4m3fn
        torch.accelerator.synchronize()
        found, truth = (float8._refused(torch.device(d), torch.float8_e4m3fnuz) for d in ("stub", "cpu"))
        assert (found is None) == (truth is None)
        import os
        os._exit(0)
    """)


def test_triton_kernels_run_in_its_interpreter(run_suite: RunSuite) -> None:
    record = run_suite(
        f"""
        suite: kernels/stub-gemm
        version: 1
        family: kernels
        description: Products on the stub.
        workload: {{op: gemm, m: 33, n: 40, k: 130}}
        baseline: torch-eager
        techniques: [torch-eager, split-k]
        protocol: {PROTOCOL}
        """
    )
    assert troubles(record) == []


JOINED = ("side-stream", "two-streams")
NOT_JOINED = ("never-joined", "joined-too-early", "half-joined")


def copies_on_side_streams(run_suite: RunSuite, names: tuple[str, ...], launches: int) -> RunRecord:
    return run_suite(
        f"""
        suite: kernels/stub-side-streams
        version: 1
        family: kernels
        description: Copies on streams of their own.
        workload: {{op: copy, size_bytes: 64KiB}}
        baseline: torch-eager
        techniques: [torch-eager, {", ".join(names)}]
        protocol: {PROTOCOL.replace("launches: 1", f"launches: {launches}")}
        """,
        "copies_on_side_streams",
    )


def test_work_on_streams_of_its_own_that_are_waited_for_is_right_and_no_fence_refuses_it(
    run_suite: RunSuite,
) -> None:
    record = copies_on_side_streams(run_suite, JOINED, 2)
    # whose clock is believed is asked by the measured suite
    assert [trouble for trouble in troubles(record) if "clocks disagree" not in trouble] == []
    # what the device did on another stream is in the time of the call
    times = [m for m in record.measurements if (m.metric.name, m.status) == ("latency", "ok")]
    assert all(min(m.samples) >= 2e-3 for m in times if m.label in JOINED)


@pytest.mark.measured
def test_work_on_streams_of_its_own_is_measured_in_each_of_ten_launches(run_suite: RunSuite) -> None:
    record = copies_on_side_streams(run_suite, JOINED, 10)
    assert troubles(record) == []
    latencies = [m for m in record.measurements if m.metric.name == "latency"]
    assert Counter(m.label for m in latencies) == dict.fromkeys(("torch-eager", *JOINED), 10)


def test_work_that_nobody_waits_for_is_refused(run_suite: RunSuite) -> None:
    record = copies_on_side_streams(run_suite, NOT_JOINED, 2)
    wrong = Counter(m.label for m in record.measurements if m.status == "incorrect")
    assert set(wrong) == set(NOT_JOINED)
    timed = {m.label for m in record.measurements if m.status == "ok" and m.metric.name == "latency"}
    assert timed == {"torch-eager"}
