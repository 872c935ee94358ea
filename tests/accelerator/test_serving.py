"""The engine on a stub accelerator answers a stream of requests as its reference says."""

from __future__ import annotations

from collections.abc import Callable

from outcomes import troubles

from paceline.records.store.folder import RunRecord

RunSuite = Callable[..., RunRecord]


def test_the_engine_answers_requests(run_suite: RunSuite) -> None:
    record = run_suite(
        """
        suite: serving/stub
        version: 1
        family: serving
        description: The engine on the stub.
        workload:
          {op: serve, model: small, workload: independent, arrivals: at-once, prompt_tokens: 12, output_tokens: 6,
           max_batch: 4}
        baseline: orca
        techniques: [orca, chunked-prefill]
        matrix: {requests: [40]}
        protocol: {launches: 1, timeout: 120s}
        """
    )
    assert troubles(record) == []
