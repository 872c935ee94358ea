"""The process in which a technique of virtual time, or a cache, runs: fenced, knowing what it may know.

It reads one JSON document and writes another; whoever started it judges what it wrote.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.families.serving import (
    caching,
    deploying,
    overlapping,
    predicting,
    scheduling,
    speculating,
)
from paceline.families.serving.cached import quantised, reading
from paceline.families.serving.cached.child import make_again, read_over
from paceline.families.serving.deploying import Busy, Deployment, Given, Layout, Load, OnePerDevice
from paceline.families.serving.engine import blocks, core
from paceline.families.serving.engine.core import RefusedStepError
from paceline.families.serving.engine.thread import FencedScheduler
from paceline.families.serving.load.calls import Call
from paceline.families.serving.overlapping import NanoBatch, Operator, Ordering
from paceline.families.serving.predicting import Asked, Configuration, Predicted, Predictor
from paceline.families.serving.scheduling import Request
from paceline.families.serving.simulation import chain, cluster, costs, desk, log, sessions
from paceline.families.serving.simulation.chain import Chain
from paceline.families.serving.simulation.cluster import Cluster, Link
from paceline.families.serving.simulation.costs import Costs
from paceline.families.serving.simulation.desk import VirtualDesk
from paceline.families.serving.speculating import Decoder
from paceline.worker.guard import ContractBreachError, Guard
from paceline.worker.loading import load
from paceline.worker.process import die_with_parent
from paceline.worker.session import CaseError

SEALED = (
    caching,
    quantised,
    reading,
    scheduling,
    deploying,
    predicting,
    speculating,
    overlapping,
    blocks,
    core,
    cluster,
    costs,
    log,
    sessions,
    chain,
    desk,
    json,
    json.encoder,
)
"""What a technique must leave as it found it."""
CACHES = {"cache": read_over, "cache again": make_again}
Play = Callable[[Any, Guard, Mapping[str, Any]], dict[str, Any]]


class FencedDeployment:
    """A deployment inside the fences, and its schedulers too.

    Args:
        inner: It.
        guard: The fences.
    """

    def __init__(self, inner: Deployment, guard: Guard) -> None:
        self._inner, self._guard = inner, guard

    def layout(self, given: Given) -> Layout:
        """Let it lay out."""
        with self._guard.watch():
            layout = self._inner.layout(given)
        if not isinstance(layout, Layout):
            raise RefusedStepError(f"the deployment returned {type(layout).__name__} instead of a Layout")
        workers = tuple(
            deploying.Worker(
                memory=w.memory,
                scheduler=FencedScheduler(w.scheduler, self._guard),
                phase=w.phase,
                token_budget=w.token_budget,
            )
            for w in layout.workers
        )
        return Layout(memories=tuple(layout.memories), workers=workers)

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Let it route."""
        self._guard.open()
        try:
            return self._inner.route(tenant, prompt_tokens, loads)
        finally:
            self._guard.close()

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Let it send a request on."""
        self._guard.open()
        try:
            return self._inner.go_on(request, memory, loads)
        finally:
            self._guard.close()

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Let it divide a device."""
        self._guard.open()
        try:
            return self._inner.shares(device, workers)
        finally:
            self._guard.close()


def main() -> int:
    """Answer what was asked; what goes wrong is told with a status."""
    die_with_parent()
    asked = json.load(sys.stdin)
    try:
        answer = _answer(asked)
    except CaseError as error:
        answer = {"status": error.status, "reason": error.reason, "detail": error.detail}
    except (RefusedStepError, ContractBreachError) as error:
        answer = {"status": "refused", "reason": str(error), "detail": None}
    except Exception as error:  # of the technique: whoever judges writes it down
        reason = f"{type(error).__name__}: {error}"
        answer = {"status": "crashed", "reason": reason, "detail": traceback.format_exc(limit=8)}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    guard = Guard(SEALED)
    loaded = load(asked["module"], asked["technique"], "serving", Path.cwd(), guard)
    if loaded.refusal is not None:
        raise loaded.refusal
    if asked["op"] in CACHES:
        # Each is judged as it leaves the fences.
        return {
            "status": "ok",
            **CACHES[asked["op"]](lambda: loaded.factory(**asked["options"]), guard, asked),
        }
    try:
        with guard.watch():
            made = loaded.factory(**asked["options"])
            if asked["op"] == "simulate" and not hasattr(made, "layout"):  # a scheduler, for each device anew
                made = OnePerDevice(lambda: loaded.factory(**asked["options"]))
    except ContractBreachError:
        raise
    except Exception as error:
        raise CaseError("crashed", f"cannot be made: {type(error).__name__}: {error}") from error
    plays: dict[str, Play] = {
        "simulate": _played,
        "predict": _predicted,
        "decode": _decoded,
        "overlap": _ordered,
    }
    told = plays[asked["op"]](made, guard, asked)
    guard.check()
    return {"status": "ok", **told}


def _played(made: Deployment, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        Call(number=n, prompt=tuple(c.pop("prompt")), after=tuple(c.pop("after")), **c)
        for n, c in enumerate(asked["calls"])
    ]
    playing = Cluster(
        FencedDeployment(made, guard),
        Given(**asked["given"]),
        Costs.of(asked["costs"]),
        Link(**asked["link"]),
    )
    return {"log": asdict(playing.play(calls))}


def _predicted(made: Predictor, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    trace = tuple(Asked(prompt_tokens=p, output_tokens=o) for p, o in asked["trace"])
    table = Costs.of(asked["costs"])
    found: list[dict[str, Any]] = []
    for configuration in asked["configurations"]:
        with guard.watch():
            predicted = made.predict(trace, Configuration(**configuration), table)
        if not isinstance(predicted, Predicted):
            raise RefusedStepError(
                f"the predictor returned {type(predicted).__name__} instead of a Predicted"
            )
        found.append(asdict(predicted))
    return {"predicted": found}


def _decoded(made: Decoder, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for seed in asked["seeds"]:
        playing = VirtualDesk(speculating.Given(**asked["given"]), Chain(seed, asked["acceptance"]))
        with guard.watch():
            made.decode(playing)
        found.append(asdict(playing.log()))
    return {"logs": found}


def _ordered(made: Ordering, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(asked["given"])
    operators = tuple(Operator(**{**o, "after": tuple(o["after"])}) for o in told.pop("operators"))
    given = overlapping.Given(operators=operators, **told)
    with guard.watch():
        found: list[Any] = list(made.order(given))
    strange = next((b for b in found if not isinstance(b, NanoBatch)), None)
    if strange is not None:
        raise RefusedStepError(f"the order has a {type(strange).__name__} instead of a NanoBatch")
    return {"batches": [asdict(b) for b in found]}
