"""Kernels end to end on the stub: timing processes, the device's events, eager operators and interpreted Triton."""

from __future__ import annotations

from collections.abc import Callable

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
