"""The contract of techniques that predict what a configuration of the engine would take. Free of torch.

A predictor is given the trace, the table of costs that was measured on the engine, and one configuration after another;
it runs nothing. The engine then is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the trace; all are there at the start."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way to set the engine, whose scheduler computes prompts in parts (``deploying.InParts``)."""

    max_batch: int
    token_budget: int
    num_blocks: int
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a simulation of every step has counted; held against the engine's own counters, to the last one."""

    steps: int
    computed_tokens: int
    """Of prompts and answers, those computed anew too."""
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What a configuration would take."""

    makespan_s: float
    ttft_s: float
    """Mean time to first token."""
    counts: Counts | None = None
    """None for who does not go through steps."""


class StepCosts(Protocol):
    """What was measured."""

    def seconds(self, pieces: Sequence[tuple[int, int, bool]], seen: int) -> float:
        """Return what a step takes.

        Args:
            pieces: Of each request its tokens before, tokens computed, and whether a next token is wanted.
            seen: Requests that wait or run when it is planned.
        """


class Predictor(Protocol):
    """A technique of the operation ``predict``."""

    def predict(self, trace: Sequence[Asked], configuration: Configuration, costs: StepCosts) -> Predicted:
        """Return what serving the trace would take."""
