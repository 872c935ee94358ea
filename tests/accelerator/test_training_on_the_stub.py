"""Training on stub accelerators: replicas, shared sequences; gradients as one process has them, times of the device."""

from __future__ import annotations

from collections.abc import Callable

from outcomes import median_of, troubles

from paceline.records.store.folder import RunRecord

RunSuite = Callable[..., RunRecord]


def test_data_parallel_techniques_train_as_one_process_does(run_suite: RunSuite) -> None:
    # fsdp is not among them: DTensor's collectives ask for a backend in C++, which the stub's is not.
    record = run_suite(
        """
        suite: training/stub
        version: 1
        family: training
        description: Replicas on the stub, of which one keeps its device busy for 10 ms a step.
        workload:
          {op: data_parallel, data: markov, size: nano, batch: 8, context: 16, learning_rate: 0.01, warmup_steps: 4,
           proof: brief, evaluations: 1}
        baseline: ddp-ring
        techniques: [ddp-ring, ddp, zero-1, zero-3, local-sgd, one-bit-adam, sleepy-steps]
        matrix: {ranks: [2], steps: [40]}
        protocol: {launches: 1, timeout: 120s}
        """,
        "sleepy_steps",
    )
    assert troubles(record) == []
    # Eight sequences of sixteen tokens a step.
    assert median_of(record, "sleepy-steps", "time_per_token") >= 10e-3 / (8 * 16)


def test_sequences_are_shared(run_suite: RunSuite) -> None:
    record = run_suite(
        """
        suite: training/stub-sequences
        version: 1
        family: training
        description: A sequence for two devices.
        workload:
          {op: sequence_parallel, evaluations: 1, size: nano, data: markov, batch: 2, context: 64,
           learning_rate: 0.003, kv_heads: 2}
        baseline: all-gather-sp
        techniques: [all-gather-sp, ulysses, ring-attention, token-ring]
        matrix: {ranks: [2], window: [5], steps: [12]}
        protocol: {launches: 1, timeout: 120s}
        """
    )
    assert troubles(record) == []


def test_stages_of_a_model_pass_on_what_they_computed(run_suite: RunSuite) -> None:
    record = run_suite(
        """
        suite: training/stub-pipelines
        version: 1
        family: training
        description: A model cut in two on devices that run messages in the order of their start.
        workload:
          {op: pipeline_parallel, evaluations: 1, size: deep, data: markov, batch: 8, context: 16,
           learning_rate: 0.003}
        baseline: 1f1b
        techniques: [1f1b, gpipe, zb-h1, interleaved-1f1b]
        matrix: {ranks: [2], window: [5], steps: [12], microbatches: [4]}
        protocol: {launches: 1, timeout: 120s}
        """
    )
    assert troubles(record) == []
