"""Unified serving: every device serves whole requests, prompts in parts beside decodes.

The baseline of disaggregation: Agrawal et al., 2024, "Taming Throughput-Latency Tradeoff in LLM Inference with
Sarathi-Serve" (OSDI 2024), section 4.1, on each of several devices.

Algorithm: a request goes to the device with the fewest tokens to compute and stays there; each step gives everybody who
decodes a token and fills its budget with parts of prompts.
Cost: a copy of the weights a device; no keys and values move. A step takes as long as the parts of prompts in it, and
everybody who decodes waits for that.
Differences: none from the scheduler ``chunked-prefill``, of which this is one copy a device behind a router.
Limits: one budget trades time to first token against time per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline import technique
from paceline.families.serving.api.deploying import (
    Busy,
    Given,
    InParts,
    Layout,
    Load,
    Memory,
    Worker,
    least_loaded,
)
from paceline.families.serving.api.scheduling import Request


@technique(
    name="unified",
    family="serving",
    implements=("simulate",),
    summary="every device serves whole requests",
)
class Unified:
    """One memory and one worker a device.

    Args:
        token_budget: Most tokens of a step; None takes what is given.
    """

    def __init__(self, *, token_budget: int | None = None) -> None:
        self._token_budget = token_budget

    def layout(self, given: Given) -> Layout:
        """Give each device one memory and one worker."""
        devices = range(given.devices)
        return Layout(
            memories=tuple(Memory(device=d, blocks=given.blocks_per_device) for d in devices),
            workers=tuple(
                Worker(memory=d, scheduler=InParts(), token_budget=self._token_budget) for d in devices
            ),
        )

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the device with the fewest tokens to compute."""
        # By tokens and not by requests: a long prompt weighs more than many decodes.
        return least_loaded(loads, range(len(loads)))

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Stay."""
        return memory

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give the only worker the device."""
        return {w.worker: 1.0 for w in workers}
