"""DeMo: ranks keep momenta of their own and send only its fast-moving components in each step.

Peng et al., "DeMo: Decoupled Momentum Optimization" (2024), algorithm 1, and the signs and defaults of
the authors' public optimiser (decay 0.999, chunks of 64, 32 coefficients).

Algorithm (m: this rank's momentum; f: ``rate_factor``):
1. m ← β·m + g. The cosine transform of each chunk of 64 × 64 elements is taken; its k largest coefficients are q.
2. What q stands for is taken out of m; q is sent to all ranks.
3. θ ← θ − f·η·sign(inverse transform of the sum of all q).

Cost of a step: (n − 1)·(2 + 1.5)·k bytes for each 4096 elements, in n − 1 messages; with k = 64, 1/73 of the elements'
bytes. Memory: m, 4P, n messages, and the coefficients, 8P at a time. There are no second moments.
Differences: 64 coefficients, since models are small. Chunks are runs of 4096 elements of the parameters, not tiles of
each tensor. Values are bfloat16, and what rounding loses stays in the momentum. All that was sent for a coefficient is
added up; the authors' optimiser divides each coefficient by the number of ranks that sent it, before the transform, so
that one which many ranks chose weighs no more in the signs than one of a single rank.
Limits: traffic grows with n; signs need a learning rate of Adam's size or less. No option makes it a synchronous step:
with all coefficients and no momentum the weights still move by signs.
"""

from __future__ import annotations

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
)
class DeMo(DecoupledMomentum):
    """Every rank is a group of its own."""

    def __init__(
        self, task: Task, comm: Comm, *, k: int = 64, decay: float = 0.999, rate_factor: float = 1.0
    ) -> None:
        # Groups of one rank: no gradient is averaged, and every momentum stays local, as in algorithm 1.
        super().__init__(task, comm, group=1, k=k, scheme="dct", decay=decay, rate_factor=rate_factor)


def cost(task: Task, *, k: int) -> Cost:
    """Return the header's formula for all steps."""
    return decoupled_cost(task, group=1, k=k, scheme="dct")
