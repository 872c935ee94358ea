"""MT-DAO: local steps of Adam whose momentum is slow enough to outlive the steps between two exchanges.

Iacob et al., "MT-DAO: Multi-Timescale Distributed Adaptive Optimizers with Local Updates" (ICLR 2026,
arXiv:2510.05361), in its form with one momentum; the mixture is quasi-hyperbolic (Ma and Yarats, ICLR 2019).

Algorithm (g: a rank's own gradient):
1. u ← β·u + (1 − β)·g and v ← β₂·v + (1 − β₂)·g²; û and v̂ without the bias of their start, as Adam's.
2. θ ← θ − η·((1 − ω)·g + ω·û)/(√v̂ + ε).
3. After H steps θ, u and v become their means over ranks.
After H local steps β^H of what ranks agreed on is left in u: 3 % with Adam's 0.9 and H = 32, 97 % with 0.999. A
momentum that slow alone would follow too late; the gradient's own share does that.

Cost of a round and memory: as local-adam's. With ω = 1 and β = 0.9 it is local-adam.
Limits: see local-adam.
"""

from __future__ import annotations

from paceline.baselines.training import local_adam
from paceline.baselines.training.local_adam import LocalAdam
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="mt-dao",
    family="training",
    implements=("data_parallel",),
    summary="H local steps along a slow momentum and the gradient, then the mean of parameters and moments",
    paper="mt-dao",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "abstract and beginning of arXiv:2510.05361, and summaries: several first momenta and the "
            "gradient, averaged at exchanges; the quasi-hyperbolic form has one, whose decay is about 0.999",
            "code": "none public",
        },
        "deviations": (
            "One slow momentum, which is the paper's quasi-hyperbolic form; others have several.",
            "Adam scales the step; the paper also has a form with ADOPT.",
            "Moments lose the bias of their start, as in QHAdam; whether the authors' do is not known.",
            "All states are averaged at the same steps; the paper allows each its own.",
            "Gradients are not clipped.",
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "32, of one example in the text"},
            "beta": {"here": 0.999, "authors": "about 0.999, by summaries"},
            "omega": {"here": 0.9, "authors": "not known"},
        },
        "checked_by": (
            "tests/unit/test_local_adam.py::test_steps_and_averages_are_those_of_the_formulas",
            "tests/unit/test_local_adam.py::test_with_adams_momentum_alone_it_is_local_adam",
        ),
    },
)
class MtDao(LocalAdam):  # type: ignore[misc]  # mypy reads baselines under another name
    """Mix the gradient and a slow momentum."""

    def __init__(
        self, task: Task, comm: Comm, *, sync_every: int = 20, beta: float = 0.999, omega: float = 0.9
    ) -> None:
        super().__init__(task, comm, sync_every=sync_every)
        self.beta, self.omega = beta, omega

    def direction(self, gradient: Tensor, step: int) -> Tensor:
        """Return the mixture."""
        slow: Tensor = super().direction(gradient, step)
        return slow.mul_(self.omega).add_(gradient, alpha=1 - self.omega)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return what local-adam sends."""
    found: Cost = local_adam.cost(task, sync_every=sync_every)
    return found
