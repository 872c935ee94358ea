"""What a schedule would take, from the times of its actions: makespan, bubble, and activations at their peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.families.training.api.pipeline.schedule import (
    Action,
    ScheduleError,
    Table,
    in_order,
    most_live,
    needs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one microbatch in each stage; a whole backward takes ``inputs`` and ``weights`` together."""

    forward: Sequence[float]
    inputs: Sequence[float]
    weights: Sequence[float]

    def of(self, action: Action) -> float:
        """Return the seconds of an action."""
        if action.kind == "F":
            return self.forward[action.stage]
        if action.kind == "I":
            return self.inputs[action.stage]
        if action.kind == "W":
            return self.weights[action.stage]
        return self.inputs[action.stage] + self.weights[action.stage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A played schedule."""

    makespan: float
    """From the first action of any rank to the last."""
    spans: tuple[float, ...]
    """For each rank: from its first action to its last."""
    busy: tuple[float, ...]
    """For each rank: seconds in actions."""
    peak: tuple[int, ...]
    """For each rank: most microbatches whose activations it keeps at one time, over its stages."""
    ends: dict[Action, float]
    """When each action ended; the first one began at 0."""

    @property
    def bubble(self) -> float:
        """Share of the makespan in which a rank does nothing, mean over ranks."""
        return 1 - sum(self.busy) / (len(self.busy) * self.makespan)

    @property
    def longest_bubble(self) -> float:
        """Seconds that the rank with the longest span waits in it: the bubble size of the zero-bubble paper."""
        return max(span - busy for span, busy in zip(self.spans, self.busy, strict=True))


def simulate(
    table: Table,
    seconds: Callable[[Action], float],
    *,
    num_stages: int,
    link_s: float = 0.0,
    live_limit: int | None = None,
) -> Simulated:
    """Play a table: every action begins when its rank is free and what it needs has arrived.

    Args:
        table: The table.
        seconds: What an action takes, ``Times.of`` or measured.
        num_stages: Stages of the model.
        link_s: From the end of an action to when another rank can use its result.
        live_limit: For how many microbatches of a stage a rank has room for activations; None means for all.

    Raises:
        ScheduleError: Ranks wait for one another in a circle, or one of them keeps more than it has room for.
    """
    if not any(table):
        raise ScheduleError("the table is empty")
    size = len(table)
    peak = tuple(map(most_live, table))
    for rank, most in enumerate(peak):
        if live_limit is not None and most > live_limit:
            raise ScheduleError(
                f"rank {rank} keeps activations of {most} microbatches at one time, and the limit is {live_limit}"
            )
    ends: dict[Action, float] = {}
    free, first, busy = [0.0] * size, [-1.0] * size, [0.0] * size
    for rank, action in in_order(table, num_stages):
        begin = free[rank]
        for choice in needs(action, num_stages):
            needed = next(a for a in choice if a in ends)
            begin = max(begin, ends[needed] + (link_s if needed.stage % size != rank else 0.0))
        spent = seconds(action)
        first[rank] = begin if first[rank] < 0 else first[rank]
        free[rank] = ends[action] = begin + spent
        busy[rank] += spent
    return Simulated(
        makespan=max(free) - min(f for f in first if f >= 0),
        spans=tuple(end - max(begin, 0.0) for begin, end in zip(first, free, strict=True)),
        busy=tuple(busy),
        peak=peak,
        ends=ends,
    )
