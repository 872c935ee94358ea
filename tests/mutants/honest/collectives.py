"""Honest sums over ranks that look unusual: lazily made buffers, several transfers at once, orders that change."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, Transfer, chunk_bounds


class _Given:
    """A sum over ranks with what it was given."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem, self.comm = problem, comm
        self.others = [r for r in range(problem.world_size) if r != problem.rank]


@technique(
    name="pieces-under-way",
    family="collectives",
    implements=("all_reduce",),
    summary="begins the backend's sums of four pieces at once and waits for the last first",
    properties={"exact": True},
)
class PiecesUnderWay(_Given):
    """Several sums of the backend are under way, and are waited for in another order."""

    def run(self, buffer: Tensor) -> None:
        """Begin all, wait backwards."""
        bounds = chunk_bounds(buffer.numel(), 4)
        begun = [self.comm.backend.start_all_reduce(buffer[a:b]) for a, b in bounds if b > a]
        for transfer in reversed(begun):
            transfer.wait()


@technique(
    name="everything-to-everybody",
    family="collectives",
    implements=("all_reduce",),
    summary="sends its buffer to all others, in one batch, and adds in the order of ranks",
    properties={"exact": True},
)
class EverythingToEverybody(_Given):
    """Makes its buffers in the first call, and keeps them."""

    landing: dict[int, Tensor] | None = None

    def run(self, buffer: Tensor) -> None:
        """Exchange, then add."""
        if self.landing is None:
            self.landing = {r: torch.empty_like(buffer) for r in self.others}
        own = buffer.clone()
        self.comm.start(
            sends=[(own, r) for r in self.others],
            receives=[(self.landing[r], r) for r in self.others],
        ).wait()
        parts = [own if r == self.problem.rank else self.landing[r] for r in range(self.problem.world_size)]
        torch.sum(torch.stack(parts), 0, out=buffer)


@technique(
    name="wider-sums",
    family="collectives",
    implements=("all_reduce",),
    summary="adds in float64 what travels as it is",
    properties={"exact": True},
)
class WiderSums(_Given):
    """Rounds once, at the end."""

    def run(self, buffer: Tensor) -> None:
        """Gather, add in float64, round."""
        rows = buffer.new_empty(self.problem.world_size, buffer.numel())
        self.comm.backend.all_gather(rows.view(-1), buffer)
        buffer.copy_(rows.to(torch.float64).sum(0))


@technique(
    name="tries-both-ways",
    family="collectives",
    implements=("all_reduce",),
    summary="takes two ways in turn for eight calls, then the one that moved fewer messages",
    properties={"exact": True},
)
class TriesBothWays(_Given):
    """Tunes itself by what it counts, which all ranks count alike."""

    calls = 0

    def run(self, buffer: Tensor) -> None:
        """Take a way."""
        self.calls += 1
        if self.calls <= 8 and self.calls % 2:
            rows = buffer.new_empty(self.problem.world_size, buffer.numel())
            self.comm.backend.all_gather(rows.view(-1), buffer)
            torch.sum(rows, 0, out=buffer)
        else:
            self.comm.backend.all_reduce(buffer)


@technique(
    name="another-root-each-call",
    family="collectives",
    implements=("all_reduce",),
    summary="gathers at a root that moves on with each call, which adds and tells the sum",
    properties={"exact": True},
)
class AnotherRootEachCall(_Given):
    """Keeps a counter from call to call, and nothing of any buffer."""

    calls = 0

    def run(self, buffer: Tensor) -> None:
        """Reduce to the root, then broadcast from it."""
        root = self.calls % self.problem.world_size
        self.calls += 1
        self.comm.backend.reduce(buffer, root)
        self.comm.backend.broadcast(buffer, root)


@technique(
    name="strided-scratch",
    family="collectives",
    implements=("all_reduce",),
    summary="spreads its buffer over every other element of a scratch, and sums rows of that",
    properties={"exact": True},
)
class StridedScratch(_Given):
    """Works on views that are not contiguous, and sends copies that are."""

    def run(self, buffer: Tensor) -> None:
        """Spread, sum, take back."""
        with self.comm.span("pack"):
            spread = buffer.new_zeros(buffer.numel(), 2)
            spread[:, 0] = buffer
            packed = spread.t()[0].contiguous()
        self.comm.backend.all_reduce(packed)
        with self.comm.span("unpack"):
            buffer.copy_(packed)


@torch.jit.script
def _added(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@technique(
    name="scripted-sum",
    family="collectives",
    implements=("all_reduce",),
    summary="adds by a function that TorchScript compiles in its first calls",
    properties={"exact": True},
)
class ScriptedSum(_Given):
    """Its first calls take longer than the others."""

    def run(self, buffer: Tensor) -> None:
        """Gather, and add compiled."""
        rows = buffer.new_empty(self.problem.world_size, buffer.numel())
        self.comm.backend.all_gather(rows.view(-1), buffer)
        buffer.copy_(_added(list(rows.unbind(0))))


@technique(
    name="receives-long-before",
    family="collectives",
    implements=("all_reduce",),
    summary="opens all its receives before it computes or sends anything",
    properties={"exact": True},
)
class ReceivesLongBefore(_Given):
    """Where receives may be started ahead; elsewhere together with the sends."""

    def run(self, buffer: Tensor) -> None:
        """Open receives, send halves one by one, then wait."""
        landing = {r: torch.empty_like(buffer) for r in self.others}
        own, pending = buffer.clone(), list[Transfer]()
        if self.comm.posts_ahead:
            pending = [self.comm.start(receives=[(landing[r], r)]) for r in self.others]
            for r in self.others:
                self.comm.send(own, r)
        else:
            both = {"sends": [(own, r) for r in self.others]}
            pending = [self.comm.start(receives=[(landing[r], r) for r in self.others], **both)]
        for transfer in pending:
            transfer.wait()
        for r in self.others:
            buffer += landing[r]


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
