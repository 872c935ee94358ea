"""Hierarchical collectives: most bytes stay inside a group, and each rank carries only its part across groups.

Xu et al., "Scaling Large Language Model Training on Frontier with Low-Bandwidth Partitioning", arXiv 2501.04266, 2025,
section III: three levels that match a node's links (die pair, node, network), after ZeRO++'s two-level partitioning.

Algorithm of the all-reduce over levels of g₀, g₁, … ranks (g₀ innermost, ∏ gᵢ = n):
1. Reduce-scatter around the ring of the innermost group: each rank holds one of g₀ chunks of the group's sum.
2. All-reduce that chunk with the ranks of the same place in the other groups, by the same rule one level up.
3. All-gather around the innermost ring.
The all-gather gathers across groups first, then inside; the reduce-scatter goes the other way. Both use two levels.

Cost of an all-reduce of S bytes: 2(g₀−1)/g₀ · S inside the innermost group and 2(g₁−1)/g₁ · S/g₀ one level up, against
2(n−1)/n · S across the slow links for a flat ring whose neighbours lie in different groups.

Limits: a level that does not divide what is left of n shrinks to its largest divisor that does.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds
from paceline.families.collectives.api.rings import all_gather, finish, reduce_scatter, sent


@technique(
    name="hierarchical",
    family="collectives",
    implements=("all_reduce", "all_gather", "reduce_scatter"),
    summary="rings inside groups, and rings of equals across groups",
    paper="frontier-low-bandwidth",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "section III by the header, not read for this card",
            "code": "none found",
        },
        "deviations": (
            (
                "Only the pattern of communication is here, without the paper's sharding of states and its "
                "quantisation."
            ),
        ),
        "constants": {
            "inner": {"here": 2, "authors": "die pairs of their machine, by the header"},
            "middle": {"here": 0, "authors": "not public"},
        },
        "checked_by": (
            "tests/conformance/test_conformance.py::test_a_technique_conforms",
            "tests/distributed/test_groups.py::test_between_groups_a_hierarchy_sends_two_thirds_of_what_a_ring_sends",
        ),
    },
)
class Hierarchical:
    """Two- and three-level rings. ``inner`` and ``middle`` are ranks of the lower levels; the case's groups win."""

    def __init__(self, problem: Problem, comm: Comm, *, inner: int = 2, middle: int = 0) -> None:
        self.problem = problem
        self.comm = comm
        self.levels = _levels(problem, inner, middle)
        chunk = -(-problem.count // self.levels[0])
        row = problem.share * (problem.world_size // self.levels[0])
        # Twice the longest message of any level: a ring step lands in one half while the other is being added.
        self.incoming = problem.empty(2 * max(chunk, row))
        staged = problem.count if problem.operation != "all_reduce" else 0
        self.stage = problem.empty(staged)

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        if self.problem.operation == "all_reduce":
            self._all_reduce(buffers[0], level=0)
        elif self.problem.operation == "all_gather":
            self._all_gather(*buffers)
        else:
            self._reduce_scatter(*buffers)

    def _all_reduce(self, buffer: Tensor, level: int) -> None:
        members, me = _ring(self.problem.rank, self.levels, level)
        chunks = [buffer[a:b] for a, b in chunk_bounds(buffer.numel(), len(members))]
        finish(reduce_scatter(self.comm, chunks, members, me, self.incoming))
        # Ranks of the same place in other groups hold the same range of the buffer, so
        # only a 1/g₀ part crosses upwards.
        if level + 1 < len(self.levels):
            self._all_reduce(chunks[me], level + 1)
        finish(all_gather(self.comm, chunks, members, me))

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        inner, share = self.levels[0], self.problem.share
        outer = self.problem.world_size // inner
        stage_IOS = self.stage.view(inner, outer, share)  # rank = outer · inner + inner place
        ring, me = _ring(self.problem.rank, (inner, outer), 0)
        across, here = _ring(self.problem.rank, (inner, outer), 1)
        stage_IOS[me, here].copy_(send)
        # Across groups while a rank has one share only; whole rows are then repeated on the fast links inside.
        finish(all_gather(self.comm, list(stage_IOS[me]), across, here))
        finish(all_gather(self.comm, [part.view(-1) for part in stage_IOS], ring, me))
        receive.view(outer, inner, share).copy_(stage_IOS.transpose(0, 1))

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        inner, share = self.levels[0], self.problem.share
        outer = self.problem.world_size // inner
        stage_IOS = self.stage.view(inner, outer, share)
        stage_IOS.copy_(send.view(outer, inner, share).transpose(0, 1))
        ring, me = _ring(self.problem.rank, (inner, outer), 0)
        across, here = _ring(self.problem.rank, (inner, outer), 1)
        rows = [part.view(-1) for part in stage_IOS]
        # Inside first: the sums that cross groups are a 1/g₀ part of what went in.
        finish(reduce_scatter(self.comm, rows, ring, me, self.incoming))
        finish(reduce_scatter(self.comm, list(stage_IOS[me]), across, here, self.incoming))
        receive.copy_(stage_IOS[me, here])


def _levels(problem: Problem, inner: int, middle: int) -> tuple[int, ...]:
    """Return the ranks of each level, innermost first; their product is the number of ranks."""
    left = problem.world_size
    levels = []
    # The case's groups win over the option: they say where the slow links are.
    for wanted in (problem.group_ranks or inner, middle):
        size = max(d for d in range(1, left + 1) if left % d == 0 and d <= max(wanted, 1))
        if size > 1:
            levels.append(size)
            left //= size
    return (*levels, left) if left > 1 or not levels else tuple(levels)


def _ring(rank: int, levels: Sequence[int], level: int) -> tuple[list[int], int]:
    """Return the ranks that differ from ``rank`` in their place of one level only, and its own place among them."""
    stride = 1
    for size in levels[:level]:
        stride *= size
    place = rank // stride % levels[level]
    return [rank + (i - place) * stride for i in range(levels[level])], place


def cost(problem: Problem, *, inner: int, middle: int) -> Cost:
    """Return the closed forms of the header, summed over levels with the true chunk sizes of every rank."""
    n, item = problem.world_size, problem.item_bytes
    levels = _levels(problem, inner, middle)
    if problem.operation == "all_reduce":
        leaving, messages = zip(*(_all_reduce_sent(r, problem.count, levels) for r in range(n)), strict=True)
        return Cost(
            sent_bytes=max(leaving) * item,
            messages=max(messages),
            total_bytes=sum(leaving) * item,
            steps=2 * sum(size - 1 for size in levels),
        )
    outer = n // levels[0]
    elements = problem.share * ((levels[0] - 1) * outer + outer - 1)
    steps = levels[0] - 1 + outer - 1
    return Cost(sent_bytes=elements * item, messages=steps, total_bytes=elements * item * n, steps=steps)


def _all_reduce_sent(rank: int, count: int, levels: Sequence[int]) -> tuple[int, int]:
    """Return the elements and messages that a rank sends in an all-reduce."""
    elements = messages = 0
    for level, size in enumerate(levels):
        _, me = _ring(rank, levels, level)
        sizes = [b - a for a, b in chunk_bounds(count, size)]
        more, parts = sent(sizes, me)
        elements, messages = elements + more, messages + parts
        # One level up only this rank's chunk is reduced, whose length depends on its place where the split is uneven.
        count = sizes[me]
    return elements, messages
