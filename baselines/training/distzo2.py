"""DistZO2: two ranks measure the two sides of one slope, and pairs of ranks share out the sequences.

Wang et al., 2025, "DistZO2: High-Throughput and Memory-Efficient Zeroth-Order Fine-tuning LLMs with Distributed
Parallel Computing" (arXiv:2507.03211), its parallelism of perturbations and of data.

Algorithm (n ranks, 1 or even, in pairs; z: one direction of a step, that all ranks draw):
1. Partners send each other their sequences, and put all of the pair into the batch's order.
2. The first of a pair computes the loss of them at w + ε·z, the second at w − ε·z.
3. All ranks tell each other their loss; the slope is the mean over pairs of (L₊ − L₋)/2ε.
4. All take the step w ← w − rate · slope · z, from a copy of w. One rank alone computes both sides.

Cost of a step: a rank's sequences once, at 4 bytes a symbol, in one message, and 8 bytes to each of n − 1 ranks:
nothing grows with the model. Computation: one forward pass over a pair's sequences, where one rank makes two.
Memory: a copy of the trained parameters, and no gradients.
Limits: the authors' partners read the same data themselves, and their weights lie in host memory, whose blocks two
accelerators upload in halves: that is not here.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline import technique
from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Comm, Cost, Replica, Task, UnsupportedError

LOSS_BYTES = 8
"""A float64: the difference of two losses is small beside them."""


@technique(
    name="distzo2",
    family="training",
    implements=("fine_tune",),
    summary="both sides of a slope at once on two ranks, pairs of which share out the sequences",
    paper="distzo2",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2507.03211",
            "code": (
                "github.com/liangyuwang/zo2, which the abstract names: zo2/config/mezo_sgd.py; one device alone, and "
                "github.com/liangyuwang/distzo2paper has figures"
            ),
        },
        "deviations": (
            "Partners exchange their sequences, since ranks here read different ones.",
            "w is put back from a copy; adding and subtracting ε·z would leave other rounding on either side.",
            "Blocks in host memory, and their upload in halves, are left out.",
            (
                "ε and the rate are the task's, 0.01 by default and the suite's; the authors' configuration has 10⁻³ "
                "for both, and a weight decay of 0.1, which is left out."
            ),
        ),
        "constants": {"LOSS_BYTES": {"here": 8, "authors": "a scalar"}},
        "checked_by": (
            "tests/unit/test_distzo2.py::test_ranks_take_the_steps_of_one_process",
            "tests/unit/test_distzo2.py::test_a_step_goes_along_the_slope_of_all_sequences",
        ),
    },
)
class DistZo2(Replica):
    """Swap sequences, measure a side, tell losses, and step."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm) -> None:
        if task.world_size > 1 and task.world_size % 2:
            raise UnsupportedError(f"{task.world_size} ranks are no pairs")
        # No backward runs: the vector of gradients, 4P, is what slopes save beside activations.
        self.flat = Flat(task.model, gradients=False)
        super().__init__(task, comm)
        self.next_step = self.register_state("next_step", torch.zeros((), dtype=torch.int64))
        self.before = torch.empty_like(self.flat.values)
        self.losses = torch.zeros(task.world_size, dtype=torch.float64)
        """Of each rank its side; of one rank alone the slope's two sides are kept in ``sides``."""
        self.sides = (0.0, 0.0)

    def make_optimizer(self) -> Optimizer:
        """Return plain SGD, which holds the rate and no state."""
        return torch.optim.SGD([self.flat.parameter], lr=self.task.peak_rate)

    def direction(self, step: int) -> Tensor:
        """Return z of a step, (P,)."""
        found = direction(self.task.seed, step, 0, 0, self.task.num_parameters)
        return found.to(self.task.device)

    def gathered(self, sequences_BS: Tensor) -> Tensor:
        """Return the pair's sequences, (2·B, S), in the order in which one process would read them."""
        rank = self.comm.rank
        own = sequences_BS.to(torch.int32).contiguous()
        other = torch.empty_like(own)
        self.comm.start(sends=[(own, rank ^ 1)], receives=[(other, rank ^ 1)]).wait()
        first, second = (own, other) if rank % 2 == 0 else (other, own)
        # Ranks read rows in turn, so that partners' rows take turns too.
        return torch.stack([first, second], dim=1).flatten(0, 1).to(sequences_BS.dtype)

    @torch.no_grad()
    def loss_at(self, sequences_BS: Tensor, distance: float, z_P: Tensor) -> float:
        """Return the loss where the weights have gone some way along a direction; they are put back."""
        weights = self.flat.values
        self.before.copy_(weights)
        weights.add_(z_P, alpha=distance)
        found = float(next_symbol_loss(self.model, sequences_BS))
        weights.copy_(self.before)
        return found

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Measure a side, or both of them where nobody helps; return the loss there."""
        z, epsilon, rank = self.direction(int(self.next_step)), self.task.epsilon, self.comm.rank
        if self.comm.world_size == 1:
            above, below = (self.loss_at(sequences_BS, side * epsilon, z) for side in (1, -1))
            self.sides = (above, below)
            return torch.tensor((above + below) / 2)
        side = -1 if rank % 2 else 1
        self.losses[rank] = self.loss_at(self.gathered(sequences_BS), side * epsilon, z)
        return self.losses[rank].float()

    def exchange_gradients(self, step: int) -> None:
        """Tell all ranks the own loss."""
        rank, size = self.comm.rank, self.comm.world_size
        if size == 1:
            return
        others = [other for other in range(size) if other != rank]
        own = self.losses[rank : rank + 1].clone()
        self.comm.start(
            sends=[(own, other) for other in others],
            receives=[(self.losses[other : other + 1], other) for other in others],
        ).wait()
        above, below = self.losses[::2].mean(), self.losses[1::2].mean()
        self.sides = (float(above), float(below))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move along the direction."""
        above, below = self.sides
        slope = (above - below) / (2 * self.task.epsilon)
        self.flat.values.sub_(self.direction(step), alpha=self.optimizer.param_groups[0]["lr"] * slope)
        self.next_step.fill_(step + 1)


def cost(task: Task) -> Cost:
    """Return the header's formula for all steps."""
    n = task.world_size
    if n == 1:
        return Cost(sent_bytes=0, peak_bytes=0, messages=0)
    rows = task.tokens // task.context // n
    sent = 4 * rows * (task.context + 1) + LOSS_BYTES * (n - 1)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * n)
