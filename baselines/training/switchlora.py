"""SwitchLoRA: pre-training by factors of low rank, whose vectors are swapped little by little for others.

"SwitchLoRA: Switched Low-Rank Adaptation Can Learn Full-Rank Information" (arXiv:2406.06564).

Algorithm, of each layer's matrix W = W₀ + B·A/r (B: rows × r, A: r × columns, r = ⌈``fraction`` · shorter side⌉; for
each factor a ring of as many candidate vectors as the shorter side is long, r of which are in use):
1. Ranks average the gradients of B and A, which follow from W's, and those of everything that has no factors.
2. r/interval vectors of B, and as many of A, change places with the next candidates of their rings. W does not change:
   W₀ takes the difference. The partners of what was switched stand still for ``still`` steps, without a past.
   interval = ``switch_every``/f, f falls by 0.3 in every ``fall`` of the run; fractions of a vector are drawn by lot.
3. Adam moves the vectors, ``rate_factor`` times as fast as the rest; W moves as B·A/r does.

Cost of a step: a ring average of Σ r·(rows + columns) + what has no factors, in place of all parameters.
Memory: W, its whole gradient, the factors with Adam's moments, and the candidates. The authors' W₀ has no gradient, and
their candidates lie in host memory.
Limits: what memory it saves on an accelerator does not show here. Without switching (``switch_every`` = 0) it is LoRA
from the same start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import MatrixReplica, matrices_of
from paceline.families.training.api.replica import BETAS, Comm, Cost, Task, UnsupportedError

EPSILON = 1e-8
"""Of Adam, as PyTorch's."""
REST = 0.3
"""Share of the switching that is left after ``fall`` of the run."""
GAIN = 0.5773502691896258
"""1/√3, Kaiming's for a leaky rectifier of slope √5, with which PyTorch begins linear layers."""


@dataclass(slots=True, kw_only=True)
class Side:
    """One factor of a matrix as r vectors in rows, and the ring of candidates that they come from."""

    vectors: Tensor
    """(r, length)."""
    gradient: Tensor
    """(r, length): what is averaged."""
    momentum: Tensor
    square: Tensor
    ages: Tensor
    """(r,): steps since Adam's moments began."""
    still: Tensor
    """(r,): steps for which a vector yet stands still."""
    pool: Tensor
    """(candidates, length): of those in use, what they were when they were taken."""
    chosen: Tensor
    """(r,): numbers of the candidates in use."""
    place: Tensor
    """(1,): the vector that is switched next."""

    def switch(self, count: int) -> Tensor:
        """Give ``count`` vectors back to the ring and take the next ones; return which."""
        rank, place = len(self.chosen), int(self.place)
        rows = (place + torch.arange(count, device=self.chosen.device)) % rank
        last = self.chosen[(place - 1) % rank]
        taken = (last + 1 + torch.arange(count, device=self.chosen.device)) % len(self.pool)
        self.pool[self.chosen[rows]] = self.vectors[rows]
        self.vectors[rows] = self.pool[taken]
        self.chosen[rows] = taken
        self.place.fill_((place + count) % rank)
        return rows

    def forget(self, rows: Tensor, still: int) -> None:
        """Let vectors, whose partners were switched, stand still and begin anew."""
        for kept in (self.momentum, self.square, self.ages):
            kept[rows] = 0
        self.still[rows] = still

    def step(self, rate: float) -> None:
        """Move the vectors by Adam, each with its own age."""
        moving = (self.still == 0).to(self.vectors.dtype).unsqueeze(1)
        self.still.sub_(1).clamp_(min=0)
        self.ages.add_(1)
        gradient, ages = self.gradient * moving, self.ages.unsqueeze(1)
        self.momentum.lerp_(gradient, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        scale = (self.square / (1 - BETAS[1] ** ages)).sqrt_().add_(EPSILON)
        self.vectors.sub_(self.momentum / (1 - BETAS[0] ** ages) / scale, alpha=rate)


@dataclass(slots=True, kw_only=True)
class Factors:
    """A matrix of a layer, and its factors."""

    matrix: Tensor
    """(rows, columns)."""
    gradient: Tensor
    """(rows, columns): what backward gave."""
    left: Side
    """B, its columns as rows."""
    right: Side
    """A."""
    scale: float
    """1/r."""

    def project(self) -> None:
        """Leave the factors' gradients where they are averaged."""
        torch.mm(self.right.vectors, self.gradient.T, out=self.left.gradient)
        torch.mm(self.left.vectors, self.gradient, out=self.right.gradient)
        self.left.gradient.mul_(self.scale)
        self.right.gradient.mul_(self.scale)

    def free(self) -> int:
        """Return how many vectors of each side may be switched now: no vector whose partner stands still."""
        left, right, rank = self.left, self.right, len(self.left.chosen)
        spare = len(left.pool) - rank
        ahead = int(left.place) - int(right.place)
        of_right = (-ahead - int((right.still > 0).sum())) % rank
        of_left = (ahead - int((left.still > 0).sum())) % rank
        return max(min(spare, of_right, of_left), 0)

    def switch(self, count: int, still: int) -> None:
        """Switch vectors of both sides; the matrix stays as it is."""
        for side, partner in ((self.right, self.left), (self.left, self.right)):
            partner.forget(side.switch(count), still)

    def step(self, rate: float) -> None:
        """Move both factors, and the matrix as their product moves."""
        self.matrix.addmm_(self.left.vectors.T, self.right.vectors, alpha=-self.scale)
        self.left.step(rate)
        self.right.step(rate)
        self.matrix.addmm_(self.left.vectors.T, self.right.vectors, alpha=self.scale)


def rank_of(shape: tuple[int, ...], fraction: float) -> int:
    """Return r of a matrix of some shape."""
    return min(math.ceil(fraction * min(shape)), *shape)


def starts(rows: int, columns: int, rank: int) -> tuple[float, float]:
    """Return the standard deviations of B's and A's elements at the start.

    B·A/r has the variance of a linear layer's matrix, and B's elements are (columns/rows)^¼ as large as A's.
    """
    left = (rank / math.sqrt(rows * columns)) ** 0.25 * math.sqrt(GAIN)
    right = (math.sqrt(rows) * rank / columns**1.5) ** 0.25 * math.sqrt(GAIN)
    return left, right


@technique(
    name="switchlora",
    family="training",
    implements=("data_parallel",),
    summary="pre-training by low-rank factors whose vectors are switched for others little by little",
    paper="switchlora",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2406.06564",
            "code": "github.com/asfsdsf/SwitchLoRA: switchlora/switch_lora.py, optimizer.py and lora_utils.py in part, "
            "llama/examples/basic",
        },
        "deviations": (
            "W is kept whole and moved as the factors' product moves, so that a switch does not touch it; the authors' "
            "keep W₀ and add the product in every forward pass.",
            "Gradients of the factors are computed from W's own, which the authors' never hold.",
            "Candidates lie where the factors lie; the authors' move them to host memory.",
            "Without dropout, as in the authors' examples; weights do not decay.",
            "No more vectors are switched at once than the ring has to spare.",
        ),
        "constants": {
            "fraction": {"here": 0.25, "authors": "256 of 1024 for 350M parameters (lora_rank)"},
            "switch_every": {
                "here": 40.0,
                "authors": "40 (switch_lora_interval)",
                "official": 40,
                "source": "github.com/asfsdsf/SwitchLoRA: switchlora/switch_lora.py",
            },
            "fall": {
                "here": 0.1,
                "authors": "0.1 (switch_lora_descent_rate)",
                "official": 0.1,
                "source": "github.com/asfsdsf/SwitchLoRA: switchlora/switch_lora.py",
            },
            "still": {
                "here": 5,
                "authors": "5 (adam_warm_step)",
                "official": 5,
                "source": "github.com/asfsdsf/SwitchLoRA: switchlora/switch_lora.py",
            },
            "rate_factor": {
                "here": 5.0,
                "authors": "20 in effect: 0.02 for all parameters, 0.001 for full rank, both of 350M parameters",
            },
            "REST": {
                "here": 0.3,
                "authors": "0.3",
                "official": 0.3,
                "source": "github.com/asfsdsf/SwitchLoRA: switchlora/switch_lora.py",
            },
            "GAIN": {"here": 0.5773502691896258, "authors": "that of leaky_relu with √5"},
            "EPSILON": {"here": 1e-08, "authors": "PyTorch's"},
        },
        "checked_by": (
            "tests/unit/test_switchlora.py::test_steps_are_those_of_factors_written_out",
            "tests/unit/test_switchlora.py::test_switching_leaves_the_matrix_and_forgets_the_partners",
        ),
    },
)
class SwitchLora(MatrixReplica):
    """Average the factors' gradients, switch vectors, and move the matrices as the factors move."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        fraction: float = 0.25,
        switch_every: float = 40.0,
        fall: float = 0.1,
        still: int = 5,
        rate_factor: float = 5.0,
    ) -> None:
        if task.optimizer_name != "adamw":
            raise UnsupportedError(f"its factors are Adam's; the point asks for {task.optimizer_name}")
        super().__init__(task, comm, rate_factor=rate_factor)
        self.switch_every, self.fall, self.still = switch_every, fall, still
        # The shared seed: averages of factors' gradients mean something only between equal factors.
        drawing = torch.Generator().manual_seed(task.seed % (1 << 31))
        self.lot = self.generators["lot"] = torch.Generator().manual_seed((task.seed + 1) % (1 << 31))
        sent = sent_elements(task, fraction)
        self.sent = torch.zeros(sent, device=task.device)
        self.ring = RingAverage(comm, sent, dtype=torch.float32, device=task.device)
        chosen = set(self.numbers)
        self.whole = [g for n, g in enumerate(self.flat.pieces(self.flat.gradients)) if n not in chosen]
        """Gradients that are averaged as they are."""
        whole = sum(g.numel() for g in self.whole)
        self.averaged = torch.split(self.sent[:whole], [g.numel() for g in self.whole])
        self.factors = self._factors(self.sent[whole:], fraction, drawing)

    def _factors(self, sent: Tensor, fraction: float, drawing: torch.Generator) -> list[Factors]:
        """Return all matrices with their factors, whose gradients are views of what is averaged."""
        found, at = [], 0
        views = zip(self.matrices(self.flat.values), self.matrices(self.flat.gradients), strict=True)
        for number, (matrix, gradient) in enumerate(views):
            rows, columns = matrix.shape
            rank = rank_of((rows, columns), fraction)
            sides = []
            ways = (("left", rows, rank // 2), ("right", columns, 0))
            for (name, length, place), std in zip(ways, starts(rows, columns, rank), strict=True):
                pool = torch.empty(min(rows, columns), length, device=self.task.device)
                bound = math.sqrt(3.0) * std
                pool.copy_(torch.empty(pool.shape).uniform_(-bound, bound, generator=drawing))
                part = sent[at : at + rank * length].view(rank, length)
                sides.append(self._side(f"{name}{number}", part, pool, place))
                at += rank * length
            factors = Factors(matrix=matrix, gradient=gradient, left=sides[0], right=sides[1], scale=1 / rank)
            found.append(factors)
        return found

    def _side(self, name: str, gradient: Tensor, pool: Tensor, place: int) -> Side:
        """Return a factor with the ring's last r candidates in use, the first of them at ``place``."""
        rank, device = len(gradient), gradient.device

        def held(what: str, tensor: Tensor) -> Tensor:
            return self.register_state(f"{name}_{what}", tensor, kind="optimizer")

        # The vector before ``place`` is the ring's last candidate, on which the first one follows.
        chosen = len(pool) - rank + (torch.arange(rank, device=device) - place) % rank
        return Side(
            vectors=held("vectors", pool[chosen]),
            gradient=gradient,
            momentum=held("momentum", torch.zeros_like(gradient)),
            square=held("square", torch.zeros_like(gradient)),
            ages=held("ages", torch.zeros(rank, device=device)),
            still=held("still", torch.zeros(rank, dtype=torch.int64, device=device)),
            pool=held("pool", pool),
            chosen=held("chosen", chosen),
            place=held("place", torch.tensor([place], device=device)),
        )

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients of factors, and of what has none."""
        for part, gradient in zip(self.averaged, self.whole, strict=True):
            part.copy_(gradient.reshape(-1))
        for factors in self.factors:
            factors.project()
        self.ring.run(self.sent)
        for part, gradient in zip(self.averaged, self.whole, strict=True):
            gradient.copy_(part.view(gradient.shape))

    def update(self, step: int) -> None:
        """Step the optimiser, switch, and move the factors."""
        self.optimizer.step()
        rate = self.optimizer.param_groups[0]["lr"] * self.rate_factor
        for factors in self.factors:
            count = min(self.switched(step, len(factors.left.chosen)), factors.free())
            if count:
                factors.switch(count, self.still)
            factors.step(rate)

    def switched(self, step: int, rank: int) -> int:
        """Draw how many of a factor's ``rank`` vectors change places in a step."""
        if not self.switch_every:
            return 0
        left = REST ** ((step + 1) / (self.fall * self.task.steps))
        whole, part = divmod(rank * left / self.switch_every, 1)
        return int(whole) + int(torch.rand((), generator=self.lot).item() < part)


def sent_elements(task: Task, fraction: float) -> int:
    """Return the elements of a step's average."""
    parameters = list(task.model.parameters())
    shapes = [tuple(parameters[n].shape) for n in matrices_of(task.model)]
    factors = sum(rank_of(shape, fraction) * sum(shape) for shape in shapes)
    return task.num_parameters - sum(math.prod(shape) for shape in shapes) + factors


def cost(task: Task, *, fraction: float) -> Cost:
    """Return the header's formula for all steps."""
    sent, messages = ring_cost(sent_elements(task, fraction), task.world_size)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
