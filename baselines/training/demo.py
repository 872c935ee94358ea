"""DeMo: ranks keep momenta of their own and send only its fast-moving components in each step.

Peng et al., "DeMo: Decoupled Momentum Optimization" (2024), algorithm 1, and the signs and defaults of
the authors' public optimiser (decay 0.999, chunks of 64, 32 coefficients).

Algorithm (m: this rank's momentum; f: ``rate_factor``):
1. m ← β·m + g. The cosine transform of each chunk of 64 × 64 elements is taken; its k largest coefficients are q.
2. What q stands for is taken out of m; q is sent to all ranks.
3. θ ← θ − f·η·sign(inverse transform of the sum of all q).

Cost of a step: (n − 1)·(2 + 1.5)·k bytes for each 4096 elements, in n − 1 messages; with k = 64, 1/73 of the elements'
bytes. Memory: m, 4P, n messages, and the coefficients, 8P at a time. There are no second moments.
Limits: traffic grows with n; signs need a learning rate of Adam's size or less. No option makes it a synchronous step:
with all coefficients and no momentum the weights still move by signs.
"""

from __future__ import annotations

from typing import Literal

from paceline import technique
from paceline.families.training.api.decoupled import DecoupledMomentum, decoupled_cost
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="demo",
    family="training",
    implements=("data_parallel",),
    summary="own momenta, of which only the largest cosine coefficients travel",
    paper="detonation",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithm 1 of DeMo by the header, not read for this card",
            "code": "github.com/bloc97/DeMo: demo.py",
        },
        "deviations": (
            "64 coefficients of a chunk travel, since models are small.",
            (
                "Chunks are runs of 4096 elements of the parameters; the authors' are tiles of 64 × 64 of each "
                "tensor, smaller where a side does not divide."
            ),
            "Values are bfloat16, and what rounding loses stays in the momentum.",
            (
                "All that was sent for a coefficient is added up; the authors take the mean over the ranks that "
                "sent it, before the transform, so that one which many ranks chose weighs no more in the signs "
                "than one of a single rank; ``mean_over: senders`` does so."
            ),
            (
                "The momentum takes in the gradient; the authors' takes in the gradient times the learning rate, "
                "which differs once the rate changes."
            ),
            "Weights do not decay, which is the authors' default too.",
        ),
        "constants": {
            "k": {
                "here": 64,
                "authors": "32, demo.py",
                "official": 32,
                "source": "github.com/bloc97/DeMo: demo.py",
                "differs": "64 coefficients of a chunk travel, since models are small",
            },
            "decay": {
                "here": 0.999,
                "authors": "0.999, demo.py",
                "official": 0.999,
                "source": "github.com/bloc97/DeMo: demo.py",
            },
            "mean_over": {
                "here": "ranks",
                "authors": "senders, demo.py",
                "official": "senders",
                "source": "github.com/bloc97/DeMo: demo.py",
                "differs": "what was sent is added up; mean_over: senders takes their mean",
            },
            "rate_factor": {"here": 1.0, "authors": "1: they tune the learning rate itself"},
        },
        "checked_by": (
            "tests/unit/test_compressed_steps.py::test_fast_components_leave_the_momentum_and_their_signs_move_the_weights",
            "tests/unit/test_training.py::test_cosines_are_orthonormal",
        ),
    },
)
class DeMo(DecoupledMomentum):
    """Every rank is a group of its own."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        k: int = 64,
        decay: float = 0.999,
        rate_factor: float = 1.0,
        mean_over: Literal["ranks", "senders"] = "ranks",
    ) -> None:
        # Groups of one rank: no gradient is averaged, and every momentum stays local, as in algorithm 1.
        super().__init__(
            task, comm, group=1, k=k, scheme="dct", decay=decay, rate_factor=rate_factor, mean_over=mean_over
        )


def cost(task: Task, *, k: int) -> Cost:
    """Return the header's formula for all steps."""
    return decoupled_cost(task, group=1, k=k, scheme="dct")
