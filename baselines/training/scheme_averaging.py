"""Averages of locally trained weights along a scheme that is written down: star, tree, ring, or everybody to everybody.

Mittone et al., 2023, "Experimenting with Emerging RISC-V Systems for Decentralised Machine Learning" (Computing
Frontiers; arXiv:2302.07946): schemes of decentralised training are described in a small language and compiled for any
runtime. Here the runtime is this process group.

A scheme is blocks with bars between them, done in their order whenever a round of H steps ends:
    ``reduce star`` / ``reduce tree``        rank 0 gets the sum, directly or up a tree of ``ARMS`` arms
    ``broadcast star`` / ``broadcast tree``  all ranks get what rank 0 has
    ``average ring``                         all ranks get the mean around a ring
    ``average all``                          every rank sends its weights to every other, and takes the mean
What ``reduce`` leaves is divided by the ranks before ``broadcast``.

Cost of an exchange, sent by the busiest rank (n ranks, 4P bytes of weights): a star (n − 1)·4P, a tree 3·4P at most, a
ring 2·(n − 1)/n · 4P, all (n − 1)·4P.
Memory: the weights of one other rank.
Limits: equal to local SGD but for the order of sums; moments of the optimiser stay local.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task, UnsupportedError
from paceline.families.training.api.rounds import ends_round, num_rounds

ARMS = 2
"""Of every rank of a tree."""
BLOCKS = ("reduce star", "reduce tree", "broadcast star", "broadcast tree", "average ring", "average all")


def blocks_of(scheme: str) -> list[str]:
    """Return a scheme's blocks.

    Raises:
        UnsupportedError: A block is unknown, or ranks would not all have the mean at its end.
    """
    found = [" ".join(block.split()) for block in scheme.split("|")]
    for block in found:
        if block not in BLOCKS:
            raise UnsupportedError(f"unknown block '{block}' in '{scheme}': one of {', '.join(BLOCKS)}")
    verbs = [block.split()[0] for block in found]
    if verbs not in (["reduce", "broadcast"], ["average"]):
        raise UnsupportedError(
            f"'{scheme}' does not leave all ranks the mean: reduce | broadcast, or average"
        )
    return found


def neighbours(shape: str, rank: int, world_size: int) -> tuple[int | None, list[int]]:
    """Return a rank's parent, and its children, in a star or a tree with rank 0 on top."""
    if shape == "star":
        return (0, []) if rank else (None, list(range(1, world_size)))
    children = range(ARMS * rank + 1, min(ARMS * rank + ARMS, world_size - 1) + 1)
    return ((rank - 1) // ARMS if rank else None), list(children)


@technique(
    name="scheme-averaging",
    family="training",
    implements=("data_parallel",),
    summary="averages of weights along a scheme that is written down: star, tree, ring or all",
    paper="riscv-dml",
    properties={
        "exact": False,
        "replicas": "apart",
        "agree": "rounds",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"sync_every": 1}},
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2302.07946",
            "code": "none read",
        },
        "deviations": (
            "The language is ours, and its runtime this process group; the authors' is mapped to FastFlow.",
            "Trees of inference are left out: what is measured here is training.",
        ),
        "constants": {
            "scheme": {
                "here": "reduce star | broadcast star",
                "authors": "federated learning's, by the ledger",
            },
            "sync_every": {"here": 20, "authors": "none read"},
            "ARMS": {"here": 2, "authors": "none read"},
        },
        "checked_by": (
            "tests/unit/test_scheme_averaging.py::test_every_scheme_leaves_the_mean_on_all_ranks",
            "tests/unit/test_scheme_averaging.py::test_the_busiest_rank_sends_what_the_formula_says",
        ),
    },
)
class SchemeAveraging(FlatReplica):
    """Do the blocks of a scheme when a round ends."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        scheme: str = "reduce star | broadcast star",
        sync_every: int = 20,
    ) -> None:
        blocks = blocks_of(scheme)
        super().__init__(task, comm)
        self.blocks, self.sync_every = blocks, sync_every
        count = self.flat.values.numel()
        self.other = torch.empty_like(self.flat.values)
        self.ring = (
            RingAverage(comm, count, dtype=torch.float32, device=task.device)
            if blocks == ["average ring"]
            else None
        )

    def exchange_parameters(self, step: int) -> None:
        """Do the scheme when a round ends."""
        if not ends_round(step, self.sync_every, self.task.steps) or self.comm.world_size == 1:
            return
        weights = self.flat.values
        for block in self.blocks:
            verb, shape = block.split()
            if self.ring is not None:
                self.ring.run(weights)
            elif verb == "average":
                self._everybody(weights)
            elif verb == "reduce":
                self._reduce(weights, shape)
            else:
                self._broadcast(weights, shape)

    def _reduce(self, weights: Tensor, shape: str) -> None:
        parent, children = neighbours(shape, self.comm.rank, self.comm.world_size)
        for child in children:
            self.comm.start(receives=[(self.other, child)]).wait()
            weights.add_(self.other)
        if parent is None:
            weights.div_(self.comm.world_size)
        else:
            self.comm.start(sends=[(weights, parent)]).wait()

    def _broadcast(self, weights: Tensor, shape: str) -> None:
        parent, children = neighbours(shape, self.comm.rank, self.comm.world_size)
        if parent is not None:
            self.comm.start(receives=[(weights, parent)]).wait()
        self.comm.start(sends=[(weights, child) for child in children]).wait()

    def _everybody(self, weights: Tensor) -> None:
        rank, size = self.comm.rank, self.comm.world_size
        own = weights.clone()
        sending = self.comm.start(sends=[(own, other) for other in range(size) if other != rank])
        weights.zero_()
        for other in range(size):
            # In the ranks' order on all of them: all add up the same bits.
            if other == rank:
                weights.add_(own)
                continue
            self.comm.start(receives=[(self.other, other)]).wait()
            weights.add_(self.other)
        sending.wait()
        weights.div_(size)


def cost(task: Task, *, scheme: str, sync_every: int) -> Cost:
    """Return the header's formula for all rounds, of the rank that sends most."""
    n, count = task.world_size, task.num_parameters
    blocks = blocks_of(scheme)
    if blocks == ["average ring"]:
        sent, messages = ring_cost(count, n)
    elif blocks == ["average all"]:
        sent, messages = (n - 1) * 4 * count, n - 1
    else:
        up, down = (block.split()[1] for block in blocks)
        messages = max(
            (neighbours(up, rank, n)[0] is not None) + len(neighbours(down, rank, n)[1]) for rank in range(n)
        )
        sent = messages * 4 * count
    rounds = num_rounds(sync_every, task.steps)
    return Cost(sent_bytes=rounds * sent, peak_bytes=sent, messages=rounds * messages)
