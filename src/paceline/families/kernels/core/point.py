"""One operation at one point: its draws, the instance that a timing process makes of it, and how calls are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from paceline.families.kernels.core.operators import (
    Draw,
    Operator,
    TensorSpec,
    Variation,
    expected_of,
    num_variations,
    variation,
)
from paceline.families.kernels.core.oracle import Check, judge
from paceline.families.kernels.core.timing_process.client import DTYPE_NAMES, Region, TimingProcess

KEPT_BYTES = 32 << 20
"""Draws of larger points are made anew for every technique: their float64 results would fill the host's memory."""
KEPT_SHARE = 64
"""On an accelerator draws are kept up to this part of its memory: with float64 results and bounds one takes up to five
times as much, and a gate has five."""


@dataclass(slots=True, kw_only=True)
class Places:
    """Where a point's outputs arrive."""

    region: Region
    outputs: list[list[dict[str, Any]]]
    """For each working set: the place of each output."""
    weight_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Point:
    """One operation at one point."""

    operator: Operator
    params: Mapping[str, Any]
    dtype: torch.dtype
    device: str
    timeout_s: float
    kept_bytes: int = KEPT_BYTES
    """Draws of more bytes are made anew for every technique."""
    known: dict[tuple[Any, ...], Draw] = field(default_factory=dict)
    """Draws that other techniques of the block were proven on."""

    @cached_property
    def specs(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Specifications of inputs and outputs."""
        return self.operator.tensors(self.params, self.dtype)

    @cached_property
    def num_variations(self) -> int:
        """Different inputs that one draw gives."""
        return num_variations(self.operator, self.params, self.dtype)

    def draw_one(self, seed: int, magnitude: float = 1.0) -> Draw:
        """Draw inputs and compute their results; small draws are kept for the block's other techniques."""
        # Parameters too: odd points share this memory with the point itself.
        key = (*sorted(self.params.items()), seed, magnitude)
        if key in self.known:
            return self.known[key]
        draw = self.operator.draw(self.params, self.dtype, seed=seed, magnitude=magnitude, device=self.device)
        if sum(spec.num_bytes for spec in (*self.specs[0], *self.specs[1])) <= self.kept_bytes:
            self.known[key] = draw
        return draw

    def draw(self, seeds: Sequence[int]) -> list[Draw]:
        """Draw once for each seed."""
        return [self.draw_one(s) for s in seeds]

    def shape_facts(self) -> dict[str, Any]:
        """Return the parameters that name the point in a reason."""
        return {k: v for k, v in self.params.items() if k not in ("op", "threads") and not k.startswith("_")}

    def make(self, process: TimingProcess, draws: Sequence[Draw], num_sets: int) -> Places:
        """Let a timing process make an instance for this point, with the draws' inputs and some working sets."""
        inputs, outputs = self.specs
        needed = len(draws) * Region.bytes_for(inputs) + num_sets * Region.bytes_for(outputs)
        # Memory that both processes map: tensors of any size travel without a copy through a socket.
        region = Region(needed)
        variants = []
        for draw in draws:
            places = [region.place(s.shape, s.dtype) for s in inputs]
            for place, tensor in zip(places, draw.inputs, strict=True):
                region.view(place).copy_(tensor)
            variants.append(places)
        found = [[region.place(s.shape, s.dtype) for s in outputs] for _ in range(num_sets)]
        reply = process.ask(
            {
                "do": "make",
                "operation": self.operator.name,
                "dtype": DTYPE_NAMES[self.dtype],
                "params": dict(self.params),
                "variants": variants,
                "num_weights": self.operator.num_weights,
                "rolled": self.operator.rolled,
                "region_bytes": region.size,
            },
            timeout_s=self.timeout_s,
            descriptors=[region.descriptor],
        )
        shapes = [{"shape": list(s.shape), "dtype": DTYPE_NAMES[s.dtype]} for s in outputs]
        process.ask({"do": "sets", "count": num_sets, "outputs": shapes}, timeout_s=self.timeout_s)
        return Places(region=region, outputs=found, weight_bytes=reply["weight_bytes"])

    def change(self, number: int, index: int) -> tuple[dict[str, Any], Variation]:
        """Return a variation of a draw as the timing process needs it, and as the oracle does."""
        changed = variation(self.operator, self.params, self.dtype, index)
        return {"variant": number, "factors": list(changed.factors), "roll": changed.roll}, changed

    def checked_call(
        self, process: TimingProcess, places: Places, draws: Sequence[Draw], number: int, index: int
    ) -> str | None:
        """Run one untimed call and judge it; return what was wrong."""
        _, reason = self.judged_call(
            process,
            places,
            draws[number],
            (number, index),
            lambda: process.run(1, timed=False, timeout_s=self.timeout_s),
        )
        return reason

    def judged_call(
        self,
        process: TimingProcess,
        places: Places,
        draw: Draw,
        chosen: tuple[int, int],
        call: Callable[[], dict[str, Any]],
    ) -> tuple[dict[str, Any], str | None]:
        """Prepare the first working set, have it computed, and judge what it holds then.

        Args:
            process: Computes.
            places: Where its outputs arrive.
            draw: The inputs before they are varied.
            chosen: Number of the draw among the instance's, and of the variation.
            call: Asks the process to compute.

        Returns:
            The process's answer, and what was wrong with the outputs or None.
        """
        change, changed = self.change(*chosen)
        # The second change is for the spare set, on which untimed calls before a pass are made.
        process.ask({"do": "prepare", "changes": [change, change]}, timeout_s=self.timeout_s)
        reply = call()
        fetched = process.ask(
            {"do": "fetch", "places": places.outputs[:1], "compare": [0]}, timeout_s=self.timeout_s
        )
        if fetched["changed_input"] is not None:
            return reply, f"the input '{self.specs[0][fetched['changed_input']].name}' was changed"
        return reply, self.judged(places, 0, draw, changed).reason

    def judged(self, places: Places, number: int, draw: Draw, changed: Variation) -> Check:
        """Judge the outputs of one working set."""
        # To the device on which the reference was computed.
        outputs = [places.region.view(p).to(self.device) for p in places.outputs[number]]
        names = [s.name for s in self.specs[1]]
        return judge(expected_of(self.operator, draw, changed), outputs, changed.output_factors, names)
