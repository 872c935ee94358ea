"""Streaming DiLoCo: fragments are synchronised one after another, in the background, in four bits an element.

Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch" (2025): fragments,
overlap with delay τ and mixing α, four-bit outer gradients (E3M0).

Algorithm (F fragments of the parameters; φ, m: global weights and outer momentum; θ: a replica's weights):
1. Fragment f is due every H steps, f·H/F steps after the first. Then Δ = φ − θ of that fragment is coded and sent.
2. Training goes on. The codes are added up in float32, coded again and sent back half way; after τ steps the mean
   arrives.
3. Nesterov's outer step gives the new φ; θ ← α·θ + (1 − α)·φ, with the θ of now.

Cost of a fragment: 2·(n − 1)/n · P/(2F) bytes, and a scale for each 4096 elements, in 2·(n − 1) messages: 1/(8F) of a
round of DiLoCo, half of it in each of two steps. Memory: φ, m and arrived means, 12P, and codes.
Limits: what is shipped is φ, whose fragments are of different ages.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.exchange import CodedAverage, coded_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import nesterov_


@technique(
    name="streaming-diloco",
    family="training",
    implements=("data_parallel",),
    summary="DiLoCo fragment by fragment, in the background, in four bits",
    paper="streaming-diloco",
    properties={
        "exact": False,
        "replicas": "identical",
        "agree": "never",
        "equals_ddp": {
            "optimizer": "sgd",
            "arguments": {
                "sync_every": 1,
                "fragments": 1,
                "delay": 0,
                "mixing": 0.0,
                "outer_rate": 1.0,
                "outer_momentum": 0.0,
                "bits": 32,
            },
        },
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "the abstract, read for this card; the rest by the header",
            "code": "none by the authors",
        },
        "deviations": (
            "Fragments are consecutive shares of the parameters, not strided layers.",
            "Both directions are coded.",
            (
                "``bits`` 32, which no suite sets, sends values as they are: with it, F = H = 1, τ = 0, α = 0, an "
                "outer rate of 1, no momentum and plain SGD it equals synchronous training."
            ),
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "not read"},
            "fragments": {"here": 4, "authors": "not read"},
            "delay": {"here": 4, "authors": "not read"},
            "mixing": {"here": 0.5, "authors": "not read"},
            "outer_rate": {"here": 0.7, "authors": "not read"},
            "outer_momentum": {"here": 0.9, "authors": "not read"},
        },
        "checked_by": (
            "tests/unit/test_outer_steps.py::test_fragments_leave_in_turn_and_are_mixed_in_when_they_arrive",
            "tests/unit/test_training.py::test_four_bits_hold_powers_of_two_exactly_and_the_rest_to_the_nearest",
        ),
    },
)
class StreamingDiLoCo(FlatReplica):
    """Begin, forward and apply fragments on their schedule."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        bits: int = 4,
        *,
        sync_every: int = 20,
        fragments: int = 4,
        delay: int = 4,
        mixing: float = 0.5,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.9,
    ) -> None:
        super().__init__(task, comm)
        # A fragment must arrive before it is due again: a delay of a whole round or more would never be applied.
        self.sync_every, self.fragments, self.delay = sync_every, fragments, min(delay, sync_every - 1)
        self.mixing, self.outer_rate, self.outer_momentum = mixing, outer_rate, outer_momentum
        count = self.flat.values.numel()
        self.bounds = chunk_bounds(count, fragments)
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        self.arrived = self.register_state("arrived", torch.zeros_like(self.slow))
        self.stage = self.register_state("stage", torch.zeros(fragments, dtype=torch.int64))
        """0: idle; 1: codes are on their way to owners; 2: back from them; 3: the mean lies in ``arrived``."""
        self.averages = [
            CodedAverage(comm, stop - start, device=task.device, bits=bits) for start, stop in self.bounds
        ]

    def exchange_parameters(self, step: int) -> None:
        """Take the actions that are due after a step."""
        for fragment, action in due(step, self.sync_every, self.fragments, self.delay):
            if action == "begin":
                start, stop = self.bounds[fragment]
                # begin() encodes at once, so the difference may be a temporary and training may go on changing θ.
                self.averages[fragment].begin(self.slow[start:stop] - self.flat.values[start:stop])
                self.stage[fragment] = 1
            elif action == "advance":
                self._advance(fragment)
            else:
                self._apply(fragment)

    def finish(self) -> None:
        """Apply what is still under way."""
        for fragment in range(self.fragments):
            # Fragments that are idle have nothing under way: Nesterov's step with an old mean would be taken twice.
            if self.stage[fragment]:
                self._apply(fragment)

    def pause(self) -> None:
        """Let what is under way arrive, and apply it when it is due."""
        for fragment in range(self.fragments):
            self._arrive(fragment)

    def weights(self) -> list[Tensor]:
        """Return the global weights."""
        return self.flat.pieces(self.slow)

    def _advance(self, fragment: int) -> None:
        # A pause may have advanced it ahead of time; the second message must not be sent again when it is due.
        if self.stage[fragment] == 1:
            self.averages[fragment].advance()
            self.stage[fragment] = 2

    def _arrive(self, fragment: int) -> None:
        self._advance(fragment)
        if self.stage[fragment] == 2:
            start, stop = self.bounds[fragment]
            # Into kept memory: a mean that arrived before a checkpoint is applied after it, when it is due.
            self.averages[fragment].complete(self.arrived[start:stop])
            self.stage[fragment] = 3

    def _apply(self, fragment: int) -> None:
        self._arrive(fragment)
        start, stop = self.bounds[fragment]
        slow, values = self.slow[start:stop], self.flat.values[start:stop]
        nesterov_(
            slow,
            self.momentum[start:stop],
            self.arrived[start:stop],
            rate=self.outer_rate,
            momentum_share=self.outer_momentum,
        )
        # α = mixing is the share of the local θ, which has moved on by τ steps since Δ was taken.
        values.lerp_(slow, 1 - self.mixing)
        self.stage[fragment] = 0


def due(step: int, sync_every: int, fragments: int, delay: int) -> Iterator[tuple[int, str]]:
    """Yield (fragment, action) after a step; the second message of a fragment leaves half way through its delay."""
    for fragment in range(fragments):
        # The first round trains whole: fragment f is due f·H/F steps after it, so that traffic is spread evenly.
        age = step + 1 - sync_every - fragment * sync_every // fragments
        if age < 0:
            continue
        phase = age % sync_every
        if phase == 0:
            yield fragment, "begin"
        # Rounded up, and checked after "begin": with τ = 0 all three actions fall into one step, in this order.
        if phase == (delay + 1) // 2:
            yield fragment, "advance"
        if phase == delay:
            yield fragment, "apply"


def cost(
    task: Task,
    *,
    sync_every: int,
    fragments: int,
    delay: int,
) -> Cost:
    """Play the schedule with the exact sizes of fragments, chunks and messages."""
    size, late = task.world_size, min(delay, sync_every - 1)
    costs = [coded_cost(b - a, size) for a, b in chunk_bounds(task.num_parameters, fragments)]
    sent, peak, messages = [0] * size, 0, 0
    open_fragments: set[int] = set()
    for step in range(task.steps):
        now = [0] * size
        for fragment, action in due(step, sync_every, fragments, late):
            if action == "begin":
                now = [a + costs[fragment][rank][0] for rank, a in enumerate(now)]
                open_fragments.add(fragment)
                messages += size - 1
            elif action == "advance" and fragment in open_fragments:
                now = [a + costs[fragment][rank][1] for rank, a in enumerate(now)]
                open_fragments.discard(fragment)
                messages += size - 1
        # finish() lets open fragments arrive, which sends their second half in the last step.
        if step == task.steps - 1:
            for fragment in open_fragments:
                now = [a + costs[fragment][rank][1] for rank, a in enumerate(now)]
                messages += size - 1
        sent = [a + b for a, b in zip(sent, now, strict=True)]
        peak = max(peak, *now)
    return Cost(sent_bytes=max(sent), peak_bytes=peak, messages=messages)
