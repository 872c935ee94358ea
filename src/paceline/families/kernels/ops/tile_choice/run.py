"""Runs blocks of ``tile_choice``: not one timed kernel, but a question asked of many.

The time of a tiled matrix product is measured for every shape and every tile. A technique sees the times of some
shapes, predicts those of the others, and is judged by times that it never saw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.families.kernels.core.starting import fork_server_of, open_process
from paceline.families.kernels.core.timing_process.client import TimingProcess
from paceline.families.kernels.ops.tile_choice.tiles import (
    FINAL_REPEATS,
    HELD_OUT,
    REPEATS,
    Bench,
    Product,
    features,
    finalists,
    judge,
    shapes,
    tiles_of,
)
from paceline.worker.ranks.session import Block, Case, CaseError, Session

REQUESTS = f"{__package__}.requests"
"""Answers in the technique's process."""


def run_block(session: Session, block: Block) -> None:
    """Let all techniques of a block predict, and emit one ``result`` event for each."""
    server = fork_server_of(session, block)
    processes: dict[str, TimingProcess] = {}
    ready = []
    try:
        for case in block.cases:
            try:
                processes[case.label] = open_process(session, block, case, server, requests=REQUESTS)
                ready.append(case)
            except CaseError as error:
                session.emit_failure(block, case, error)
        if ready:
            for case, result in zip(ready, _results(session, block, processes, ready), strict=True):
                session.emit_result(block, case, result)
    finally:
        for process in processes.values():
            process.end()


def _results(
    session: Session, block: Block, processes: dict[str, TimingProcess], cases: Sequence[Case]
) -> list[dict[str, Any]]:
    """Measure the table once and let every technique predict the held-out part of it; return one result a case."""
    rng = random.Random(session.draw_seed("shapes", block.block))
    torch.set_num_threads(int(block.params["threads"]))
    drawn = shapes(int(block.params["largest"]), int(block.params["num_shapes"]), rng)
    session.begin(block, "-", "table")
    bench = Bench(drawn, rng)
    table = bench.times([(shape, tile) for shape in drawn for tile in tiles_of(shape)], REPEATS)
    held = set(drawn[::HELD_OUT])
    known = {product: seconds for product, seconds in table.items() if product[0] not in held}
    unknown = [product for product in table if product[0] in held]
    answers: list[_Answer | CaseError] = []
    for case in cases:
        session.begin(block, case.label, "predict")
        try:
            answers.append(_predict(block, processes[case.label], known, unknown))
        except CaseError as error:
            answers.append(error)
    session.begin(block, "-", "time again")
    predictions = [a.predicted for a in answers if isinstance(a, _Answer)]
    again = bench.times(finalists(table, unknown, predictions), FINAL_REPEATS)
    return [_result(answer, table, known, unknown, again) for answer in answers]


@dataclass(frozen=True, slots=True)
class _Answer:
    predicted: list[float]
    fit_s: float


def _predict(
    block: Block, process: TimingProcess, known: Mapping[Product, float], unknown: Sequence[Product]
) -> _Answer:
    reply = process.ask(
        {
            "do": "operation",
            "params": dict(block.params),
            "known": [features(*product) for product in known],
            "times": list(known.values()),
            "unknown": [features(*product) for product in unknown],
        },
        timeout_s=0.8 * float(block.protocol["timeout_s"]),
    )
    predicted = [float(p) for p in reply["predicted"]]
    if len(predicted) != len(unknown) or not all(math.isfinite(p) and p > 0 for p in predicted):
        raise CaseError("incorrect", "predictions are not one positive number for each held-out product")
    return _Answer(predicted, float(reply["elapsed_s"]))


def _result(
    answer: _Answer | CaseError,
    table: Mapping[Product, float],
    known: Mapping[Product, float],
    unknown: Sequence[Product],
    again: Mapping[Product, float],
) -> dict[str, Any]:
    if isinstance(answer, CaseError):
        return {"status": answer.status, "reason": answer.reason, "detail": answer.detail, "metrics": {}}
    figures = judge(answer.predicted, [table[product] for product in unknown], unknown, again)
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in figures.items()},
        "correctness": {
            "passed": True,
            "oracle": "times measured in the same launch, unseen by the technique",
        },
        "accounting": {
            "known": len(known),
            "held_out": len(unknown),
            "timed_again": len(again),
            "fit_s": answer.fit_s,
        },
    }
