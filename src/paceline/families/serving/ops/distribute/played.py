"""A load played on ranks that share a model, by what their steps cost in the modes that a technique chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.families.serving.api.costs import Piece
from paceline.families.serving.api.deploying import Given, OnePerDevice
from paceline.families.serving.api.distributing import Distributed
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.cluster import Cluster, Link
from paceline.families.serving.core.simulation.costs import Costs
from paceline.families.serving.core.simulation.log import DoneStep, Log

LABEL = "virtual time from measured computation and a stated link"
NOWHERE = Link(bytes_per_s=1e9)


class ModeCosts:
    """What a step costs in the mode that a technique chooses for it.

    Args:
        made: The technique.
        tables: Costs of its modes.
    """

    def __init__(self, made: Distributed, tables: Sequence[Costs]) -> None:
        self._made, self._tables = made, tables
        self.kv_bytes_per_token = tables[0].kv_bytes_per_token
        self._chosen: dict[tuple[Piece, ...], int] = {}

    def mode(self, pieces: Sequence[Piece]) -> int:
        """Return the mode of a step; who chooses is asked once about the same step."""
        key = tuple(pieces)
        if key not in self._chosen:
            mode = self._made.choose(key)
            if type(mode) is not int or not 0 <= mode < len(self._tables):
                raise ValueError(f"choose names mode {mode!r}; there are {len(self._tables)}")
            self._chosen[key] = mode
        return self._chosen[key]

    def seconds(self, pieces: Sequence[Piece], seen: int) -> float:
        """Return what a step takes."""
        return self._tables[self.mode(pieces)].seconds(pieces, 0)


def given_of(params: Mapping[str, Any], *, replicas: int) -> Given:
    """Return what there is: one group of ranks that compute together, or ranks that are alone."""
    return Given(
        devices=replicas,
        blocks_per_device=int(params["num_blocks"]),
        weight_blocks=0,
        block_size=int(params["block_size"]),
        max_batch=int(params["max_batch"]),
        token_budget=int(params["token_budget"]),
    )


def play(calls: Sequence[Call], given: Given, costs: ModeCosts) -> Log:
    """Serve calls; decodes first, then prompts in parts, in the order of their arrival."""
    return Cluster(OnePerDevice(), given, costs, NOWHERE).play(calls)


def pieces_of(step: DoneStep) -> tuple[Piece, ...]:
    """Return what a step computed, as costs know it."""
    return tuple((p.begin, p.count, p.ends) for p in step.parts)


def mode_figures(log: Log, costs: ModeCosts, sent_per_token: Sequence[float]) -> dict[str, float]:
    """Return how often the mode changed, and bytes sent by all ranks for a computed token."""
    switches, sent, tokens = 0, 0.0, 0
    last: dict[int, int] = {}
    for step in sorted(log.steps, key=lambda s: s.begin_s):
        mode, count = costs.mode(pieces_of(step)), sum(p.count for p in step.parts)
        switches += last.setdefault(step.worker, mode) != mode
        last[step.worker] = mode
        sent += sent_per_token[mode] * count
        tokens += count
    return {"mode_switches": float(switches), "sent_per_token": sent / tokens}
