"""Schedules of pipelines as tables: what each rank does, in which order. Free of torch.

A model is cut into stages; stage s lies on rank s mod n, so that more stages than ranks are interleaved. Actions:

    F  forward of one microbatch through one stage
    B  its whole backward
    I  backward to the stage's input alone
    W  backward to the stage's weights, which nobody waits for

I and W are those of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B", "I", "W"]
KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a rank does."""

    kind: Kind
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch} of stage {self.stage}"


Table = Sequence[Sequence[Action]]
"""For each rank its actions in their order."""


class ScheduleError(ValueError):
    """A table that no pipeline can follow."""


def needs(action: Action, num_stages: int) -> Iterator[tuple[Action, ...]]:
    """Yield what must have ended before an action: of each tuple one, whichever the table has."""
    kind, stage, microbatch = action.kind, action.stage, action.microbatch
    if kind == "F":
        if stage > 0:
            yield (Action("F", stage - 1, microbatch),)
    elif kind == "W":
        yield (Action("I", stage, microbatch),)
    else:
        yield (Action("F", stage, microbatch),)
        if stage + 1 < num_stages:
            yield Action("B", stage + 1, microbatch), Action("I", stage + 1, microbatch)


def check(table: Table, *, num_stages: int, microbatches: int) -> None:
    """Make sure that a table does everything once, where its stage lies, and never waits for itself.

    Raises:
        ScheduleError: What is missing, twice, in the wrong place, or waited for in a circle.
    """
    size = len(table)
    seen = Counter(action for row in table for action in row)
    for rank, row in enumerate(table):
        for action in row:
            if action.stage % size != rank:
                raise ScheduleError(f"rank {rank} has {action}, which lies on rank {action.stage % size}")
    for action, count in seen.items():
        if count > 1:
            raise ScheduleError(f"{action} occurs {count} times")
        if not (0 <= action.stage < num_stages and 0 <= action.microbatch < microbatches):
            raise ScheduleError(f"{action} is outside {num_stages} stages and {microbatches} microbatches")
    for stage in range(num_stages):
        for microbatch in range(microbatches):
            kinds = "".join(kind for kind in KINDS if seen[Action(kind, stage, microbatch)])
            # A split backward needs both halves: I alone would leave the weights without a gradient.
            if kinds not in ("FB", "FIW"):
                raise ScheduleError(
                    f"stage {stage} does '{kinds}' with microbatch {microbatch}, and not FB or FIW"
                )
    # Running it is the check: sends are not waited for, so only data dependencies can form a circle.
    for _ in in_order(table, num_stages):
        pass


def in_order(table: Table, num_stages: int) -> Iterator[tuple[int, Action]]:
    """Yield (rank, action) in an order in which everything that an action needs comes before it.

    Raises:
        ScheduleError: There is none: ranks wait for one another in a circle.
    """
    done: set[Action] = set()
    at = [0] * len(table)
    left = sum(map(len, table))
    while left:
        before = left
        for rank, row in enumerate(table):
            # As far as this rank gets: data dependencies alone decide, so the order of ranks here changes no verdict.
            while at[rank] < len(row):
                action = row[at[rank]]
                if not all(done.intersection(one) for one in needs(action, num_stages)):
                    break
                done.add(action)
                at[rank] += 1
                left -= 1
                yield rank, action
        # A round without progress: no rank's next action can ever run, since nothing else would change.
        if left == before:
            waiting = [f"rank {r} for {row[at[r]]}" for r, row in enumerate(table) if at[r] < len(row)]
            raise ScheduleError(f"ranks wait for one another in a circle: {'; '.join(waiting)}")


def times(table: Table, num_stages: int) -> dict[Action, tuple[int, int]]:
    """Return when each action begins and ends, were each one unit long and what it sends there at once.

    Raises:
        ScheduleError: Ranks wait for one another in a circle.
    """
    found: dict[Action, tuple[int, int]] = {}
    free = [0] * len(table)
    for rank, action in in_order(table, num_stages):
        before = (min(found[a][1] for a in one if a in found) for one in needs(action, num_stages))
        begin = max([free[rank], *before])
        found[action] = begin, begin + 1
        free[rank] = begin + 1
    return found


def most_live(row: Sequence[Action]) -> int:
    """Return for how many microbatches a rank at most keeps activations of a stage at one time."""
    live = most = 0
    for action in row:
        # I frees nothing: the inputs that W needs are kept until W.
        live += (action.kind == "F") - (action.kind in ("B", "W"))
        most = max(most, live)
    return most
