"""Hierarchical ZeRO: weights are shared out inside groups of ranks, and the optimiser's state over all of them.

Xu et al., "Scaling Large Language Model Training on Frontier with Low-Bandwidth Partitioning" (2025), with two levels:
the ranks of a group, whose links are fast, and groups. ZeRO++ (Wang et al., 2023) keeps such secondary shards, too.

Algorithm (G = n/g groups of g ranks; units as in ``zero-3``, each in g rows, a row in G parts):
1. A rank keeps a row of every unit, the same row in each group, and owns one part of it: the optimiser's share.
2. Before forward and before backward the group's rows are gathered: nothing leaves the group.
3. A unit's gradients are scattered over rows inside the group; the rows' sums over parts between the groups' ranks that
   keep the same row.
4. Each rank updates its part; the parts of a row are gathered between groups.

Cost of a step: inside a group 3·(g − 1)/g · 4P for layers and 2·(g − 1)/g · 4P for the rest; between groups
2·(G − 1)/G · 4P/g, where zero-3's ring takes all that it gathers from group to group. State: weights 4P/g, gradients
and Adam's moments 12P/n. Memory: as zero-3.
Differences: nothing is quantised, so that losses are synchronous training's; the paper's transfers are.
Limits: g is lowered to its greatest common divisor with n; with one group it is zero-3, with groups of one rank zero-1.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.decoupled import group_size
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.sharded import ShardedReplica, Unit, unit_sizes

Bounds = list[tuple[int, int]]


def part_bounds(count: int, world_size: int, group: int) -> tuple[Bounds, Bounds]:
    """Return (start, stop) of each place's row of a unit, and of each rank's part.

    Args:
        count: Elements of the unit.
        world_size: n.
        group: g, a divisor of n.
    """
    rows = chunk_bounds(count, group)
    parts = []
    for rank in range(world_size):
        start, stop = rows[rank % group]
        low, high = chunk_bounds(stop - start, world_size // group)[rank // group]
        parts.append((start + low, start + high))
    return rows, parts


@technique(
    name="hierarchical-zero",
    family="training",
    implements=("data_parallel",),
    summary="weights in shares of a group, gathered inside it; the optimiser's state in shares of all ranks",
    paper="frontier-low-bandwidth",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "abstract of arXiv:2501.04266 and the ledger's method, not read for this card",
            "code": "none public",
        },
        "deviations": (
            "Two levels; the paper has three: two dies of a GPU, the GPUs of a node, and nodes.",
            "Transfers are of float32; the paper's are quantised.",
            "Gradients are shared out over all ranks, as the optimiser's state; the paper's have a level of their own.",
        ),
        "constants": {"group": {"here": 2, "authors": "not known; Frontier's GPUs have two dies"}},
        "checked_by": (
            "tests/unit/test_hierarchical_zero.py::test_rows_and_parts_cover_every_element_once",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class HierarchicalZero(ShardedReplica):
    """Gather rows inside the group, parts between groups."""

    def __init__(self, task: Task, comm: Comm, *, group: int = 2) -> None:
        # Before super().__init__, which lays out the units by these.
        self.size = group_size(group, task.world_size)
        self.place, self.number = task.rank % self.size, task.rank // self.size
        first = task.rank - self.place
        self.group = range(first, first + self.size)
        self.peers = range(self.place, task.world_size, self.size)
        """Ranks that keep the same row, in the order of groups."""
        super().__init__(task, comm)
        for i, unit in enumerate(self.units):
            self.register_state(f"row_{i}", unit.kept)

    def bounds(self, count: int, world_size: int) -> tuple[Bounds, tuple[int, int] | None]:
        """Return each rank's part of a unit, and this rank's row, which stays here."""
        rows, parts = part_bounds(count, world_size, self.size)
        return parts, rows[self.place]

    def gather(self, unit: Unit) -> None:
        """Make a unit whole from the group's rows."""
        rows = unit.room(part_bounds(unit.count, self.comm.world_size, self.size)[0])
        rows[self.place].copy_(unit.kept)
        rings.finish(rings.all_gather(self.comm, rows, self.group, self.place))

    def scatter(self, unit: Unit) -> Tensor:
        """Return the sum over ranks of this rank's part of a unit's gradients."""
        rows = unit.take_gradients(part_bounds(unit.count, self.comm.world_size, self.size)[0])
        rings.finish(rings.reduce_scatter(self.comm, rows, self.group, self.place, _scratch(rows)))
        parts = self._parts(rows[self.place])
        rings.finish(rings.reduce_scatter(self.comm, parts, self.peers, self.number, _scratch(parts)))
        return parts[self.number]

    def exchange_parameters(self, step: int) -> None:
        """Gather the parts of this rank's rows between groups."""
        for unit in self.units:
            parts = self._parts(unit.kept)
            rings.finish(rings.all_gather(self.comm, parts, self.peers, self.number))

    def _parts(self, row: Tensor) -> list[Tensor]:
        """Return a row's parts, in the order of groups."""
        return [row[start:stop] for start, stop in chunk_bounds(len(row), len(self.peers))]


def _scratch(chunks: list[Tensor]) -> Tensor:
    """Return what a reduce-scatter of chunks needs; it goes with the unit."""
    longest = max(len(chunk) for chunk in chunks)
    return chunks[0].new_empty(2 * longest if len(chunks) > 1 else 0)


def cost(task: Task, *, group: int) -> Cost:
    """Return the header's formula, with the exact sizes of rows and parts."""
    n, sizes = task.world_size, unit_sizes(task.model)
    size = group_size(group, n)
    groups, busiest, held = n // size, 0, 0
    for rank in range(n):
        place, number = rank % size, rank // size
        sent = state = 0
        for i, count in enumerate(sizes):
            rows = [stop - start for start, stop in part_bounds(count, n, size)[0]]
            parts = [stop - start for start, stop in chunk_bounds(rows[place], groups)]
            # Gathered for forward and again for backward; the rest of the model, which stays, once.
            times = 2 if i < len(sizes) - 1 else 1
            # An all-gather sends all chunks but the next rank's, a reduce-scatter all but the own one.
            sent += times * (count - rows[(place + 1) % size]) + count - rows[place]
            sent += 2 * rows[place] - parts[number] - parts[(number + 1) % groups]
            state += rows[place] + (1 + task.moment_bytes // 4) * parts[number]
        busiest, held = max(busiest, sent), max(held, state)
    inside = (size - 1) * (3 * len(sizes) - 1)
    return Cost(
        sent_bytes=task.steps * 4 * busiest,
        peak_bytes=4 * busiest,
        messages=task.steps * (inside + 2 * (groups - 1) * len(sizes)),
        state_bytes=4 * held,
        scratch_bytes=0,
    )
