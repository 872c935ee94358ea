"""Eager updates: DiLoCo that hides its exchange behind the next round, and does not let its own displacement wait.

Kale et al., 2025, "Eager Updates For Overlapped Communication and Computation in DiLoCo" (arXiv:2502.12996).

Algorithm (φ: the weights from which this rank's round starts; n ranks):
1. H local steps from φ give θ; Δₜ = φ − θ sets out around a ring, its messages spread evenly over the next round.
2. When round t ends, the mean D of all ranks' Δₜ₋₁ has arrived. The rank's own share of it was applied a round ago:
   E = D − Δₜ₋₁/n + Δₜ/n, the others' share one round old, and its own fresh.
3. m ← μ·m + E; φ ← φ − η·(E + μ·m), Nesterov's step. On one rank this is DiLoCo.

Cost of a round: as delayed-diloco's; memory: 4P more, the own share that was applied.
Limits: ranks go on from weights of their own. After the end the others' share of the last round joins the last step.
"""

from __future__ import annotations

import torch
from paceline.baselines.training import delayed_diloco
from paceline.baselines.training.delayed_diloco import DelayedDiLoCo
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="eager-updates",
    family="training",
    implements=("data_parallel",),
    summary="DiLoCo hidden behind the next round, the own displacement at once and the others' one round late",
    paper="eager-updates",
    properties={"exact": False, "replicas": "apart"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "abstract and beginning of arXiv:2502.12996, and a summary: the own outer gradient mixed with the "
            "delayed mixture of all others'",
            "code": "none public",
        },
        "deviations": (
            "The first round's end applies the own share alone.",
            "After the end the others' share R of the last round joins its outer step: m ← m + R, φ ← φ − η·(1 + μ)·R.",
            "Rounds are 20 steps by default.",
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "not known; DiLoCo's is 500"},
            "outer_rate": {"here": 0.7, "authors": "not known; DiLoCo's is 0.7"},
            "outer_momentum": {
                "here": 0.6,
                "authors": "not known; DiLoCo's is 0.9, and 0.6 is the best of four for it here",
            },
        },
        "checked_by": (
            "tests/unit/test_eager_updates.py::test_outer_steps_take_the_own_share_at_once_and_the_others_late",
            "tests/unit/test_eager_updates.py::test_on_one_rank_it_is_diloco",
        ),
    },
)
class EagerUpdates(DelayedDiLoCo):  # type: ignore[misc]  # mypy reads baselines under another name
    """Take outer steps of a fresh own share and of the others' late ones."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.6,
    ) -> None:
        super().__init__(
            task, comm, sync_every=sync_every, outer_rate=outer_rate, outer_momentum=outer_momentum
        )
        self.applied = self.register_state("applied", torch.zeros_like(self.slow))
        """The own share of what travels."""

    def step_outer(self, fresh: Tensor | None) -> None:
        """Step along the others' late share and the own fresh one."""
        self.outer.sub_(self.applied)
        if fresh is None:
            # No step of its own, whose momentum would carry on: on one rank nothing is left to be done.
            self.momentum.add_(self.outer)
            self.slow.sub_(self.outer, alpha=self.outer_rate * (1 + self.outer_momentum))
            return
        torch.div(fresh, self.comm.world_size, out=self.applied)
        self.outer.add_(self.applied)
        self.nesterov()


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return delayed-diloco's formula."""
    found: Cost = delayed_diloco.cost(task, sync_every=sync_every)
    return found
