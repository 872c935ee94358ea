"""The process in which a technique of ``simulate`` deploys workers, and these are played."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.deploying import (
    Busy,
    Deployment,
    Given,
    Layout,
    Load,
    OnePerDevice,
    Worker,
)
from paceline.families.serving.api.scheduling import Request
from paceline.families.serving.core.child import Make, made, main
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.families.serving.core.engine.thread import FencedScheduler
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.cluster import Cluster, Link
from paceline.families.serving.core.simulation.costs import Costs
from paceline.worker.fences.guard import Guard


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
            Worker(
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


def play(make: Make, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let it serve the calls."""
    technique: Deployment = made(make, guard)
    if not hasattr(technique, "layout"):  # a scheduler, for each device anew
        technique = OnePerDevice(make)
    calls = [
        Call(number=n, prompt=tuple(c.pop("prompt")), after=tuple(c.pop("after")), **c)
        for n, c in enumerate(asked["calls"])
    ]
    playing = Cluster(
        FencedDeployment(technique, guard),
        Given(**asked["given"]),
        Costs.of(asked["costs"]),
        Link(**asked["link"]),
    )
    log = asdict(playing.play(calls))
    guard.check()
    return {"log": log}


if __name__ == "__main__":
    sys.exit(main(play))
