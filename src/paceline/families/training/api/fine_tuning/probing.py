"""The replica of techniques that measure slopes instead of gradients: two forward passes along a random direction.

In a step every rank measures Q slopes, s = (L(w + ε·z) − L(w − ε·z)) / 2ε, each on its own part of the rank's
sequences and along a direction z of its own (``directions``). It sends the code of each slope to every other rank.
All ranks then know the same codes, draw the directions anew, and take the same step,

    w ← w − rate(step) / (M·Q) · Σ decode(code)·z   over M ranks and their Q probes, in this order, in float32.

A technique says what a code is (``encode``, ``decode``) and may change everything else, as long as the weights after
every step are, bit for bit, what the formula makes of the codes that ranks sent. The harness holds it to that with a
replay of its own, and lets a rank join late that knows the initial weights and the codes alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Comm, Cost, Replica, Task

__all__ = ["Entry", "ProbingReplica", "probing_cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What ranks shared in one step."""

    step: int
    members: tuple[int, ...]
    """The ranks that took part."""
    codes: Tensor
    """(members, probes, bytes of a code), uint8."""


class ProbingReplica(Replica):
    """Measures slopes, shares their codes and applies what the codes stand for.

    Attributes:
        code_bytes: Bytes of a code.
        members: Ranks that take part; ``meet`` changes it.
        own: The codes of this rank's slopes in the current step, (probes, bytes of a code), uint8.
    """

    code_bytes: int

    def __init__(self, task: Task, comm: Comm) -> None:
        # No backward runs: the vector of gradients, 4P, is what probing saves beside activations.
        self.flat = Flat(task.model, gradients=False)
        super().__init__(task, comm)
        self.members = tuple(range(task.world_size))
        self.next_step = self.register_state("next_step", torch.zeros((), dtype=torch.int64))
        self.own = torch.zeros(task.num_perturbations, self.code_bytes, dtype=torch.uint8)
        self.codes = self.own[None]
        self.before = torch.empty_like(self.flat.values)
        """The weights around which a slope is measured: adding and subtracting ε·z does not lead back to them."""
        self.total = torch.empty_like(self.flat.values)

    @abstractmethod
    def encode(self, slopes: Tensor) -> Tensor:
        """Return the codes, (n, bytes of a code) as uint8, of slopes, (n,) in float64."""

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Return what codes, (n, bytes of a code), stand for, (n,) in float64; each by itself."""

    def make_optimizer(self) -> Optimizer:
        """Return plain SGD, which holds the rate and no state."""
        return torch.optim.SGD([self.flat.parameter], lr=self.task.peak_rate)

    def direction(self, step: int, rank: int, probe: int) -> Tensor:
        """Return z of one probe, (P,)."""
        found = direction(self.task.seed, step, rank, probe, self.task.num_parameters)
        return found.to(self.task.device)

    def meet(self, members: Sequence[int]) -> None:
        """Take note of who takes part from the next step on."""
        self.members = tuple(members)

    def replay(self, log: Sequence[Entry]) -> None:
        """Take the steps of a log, without data; on a replica that was just made."""
        for entry in log:
            self.set_rate(self.task.rate(entry.step))
            self.apply(entry.step, entry.members, entry.codes)
            self.next_step.fill_(entry.step + 1)

    # The parts of a step

    @torch.no_grad()
    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Measure this rank's slopes; return the mean loss at all points where it was measured."""
        step, slopes, losses = int(self.next_step), [], []
        # Each probe has sequences of its own: Q probes cost the forward passes of one over the whole share.
        for probe, part_bS in enumerate(sequences_BS.chunk(self.task.num_perturbations)):
            slope, loss = self.probe(part_bS, self.direction(step, self.comm.rank, probe))
            slopes.append(slope)
            losses.append(loss)
        # float64: the codes of float32 losses' slopes must not depend on a further rounding.
        self.own.copy_(self.encode(torch.tensor(slopes, dtype=torch.float64)))
        return torch.tensor(sum(losses) / len(losses))

    def probe(self, sequences_BS: Tensor, z_P: Tensor) -> tuple[float, float]:
        """Return the slope along a direction, and the mean of the two losses."""
        weights, distance = self.flat.values, self.task.epsilon
        self.before.copy_(weights)
        weights.add_(z_P, alpha=distance)
        above = float(next_symbol_loss(self.model, sequences_BS))
        # From the copy and not by −2ε·z: (w + εz) − εz rounds, on every rank at another z, and replicas would part.
        weights.copy_(self.before).add_(z_P, alpha=-distance)
        below = float(next_symbol_loss(self.model, sequences_BS))
        weights.copy_(self.before)
        return (above - below) / (2 * distance), (above + below) / 2

    def exchange_gradients(self, step: int) -> None:
        """Send the own codes to every other member and receive theirs."""
        self.codes = torch.empty(len(self.members), *self.own.shape, dtype=torch.uint8)
        others = [(place, rank) for place, rank in enumerate(self.members) if rank != self.comm.rank]
        transfer = self.comm.start(
            sends=[(self.own, rank) for _, rank in others],
            receives=[(self.codes[place], rank) for place, rank in others],
        )
        self.codes[self.members.index(self.comm.rank)].copy_(self.own)
        transfer.wait()

    def update(self, step: int) -> None:
        """Take the step that all members' codes stand for."""
        self.apply(step, self.members, self.codes)
        self.next_step.fill_(step + 1)

    @torch.no_grad()
    def apply(self, step: int, members: Sequence[int], codes: Tensor) -> None:
        """Change the weights by the header's formula."""
        # The own codes are decoded like all others: a rank that applied its exact slopes would leave the others.
        slopes = self.decode(codes.reshape(-1, self.code_bytes)).view(codes.shape[:2]).tolist()
        self.total.zero_()
        # One order: float32 sums depend on it, and replicas and the replay must agree in every bit.
        for rank, of_rank in zip(members, slopes, strict=True):
            for probe, slope in enumerate(of_rank):
                self.total.add_(self.direction(step, rank, probe), alpha=slope)
        (group,) = self.optimizer.param_groups
        # The mean of all members' probes, by the number that took part: members may change (meet).
        self.flat.values.sub_(self.total, alpha=group["lr"] / (codes.shape[0] * codes.shape[1]))


def probing_cost(task: Task, code_bytes: int) -> Cost:
    """Return what a rank sends: its codes to every other rank, in one message each."""
    others = task.world_size - 1
    sent = others * task.num_perturbations * code_bytes
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * others)
