"""DIFF2-GD: what is released are differences of gradients between two iterates, which one sample changes less.

Murata & Suzuki, 2023, "DIFF2: Differential Private Optimization via Gradient Differences for Nonconvex Distributed
Learning" (ICML; arXiv:2302.03884), with gradient descent inside.

Algorithm, in rounds r:
1. r mod ``restart`` = 0: every client releases its mean gradient at x_r, clipped to C1, with noise σ1·C1/n; v is their
   mean.
2. Else: every client releases the mean of its samples' differences between x_r and x_{r−1}, clipped to
   C2·‖x_r − x_{r−1}‖, with noise σ2 in units of that over n; v adds their mean.
3. x ← x − η·v.
σ1 and σ2 share the point's privacy: a part ``refresh_share`` for the gradients, the rest for the differences.
Cost of a round: one or two models down and one vector up for each client, of 32·dim bits each.
Limits: noise of differences adds up between restarts; a step that is long is released as noisily as a gradient.
"""

from __future__ import annotations

import math

import numpy as np
from paceline.baselines.training.private_descent import PrivateDescent, noise_for

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Given,
    PrivateGradient,
    Receive,
    Report,
    Run,
    Send,
)


@technique(
    name="diff2",
    family="training",
    implements=("objective",),
    summary="releases differences of gradients between iterates, and gradients now and then",
    paper="diff2",
    properties={
        "private": True,
        "equals": {
            "plain": "gradient-descent",
            "arguments": {
                "rate": 0.5,
                "rounds": 20,
                "clip": 1e6,
                "clip_difference": 1e6,
                "quiet": True,
                "single": False,
            },
            "rate": 0.5,
        },
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2302.03884, and others' summary of its method, theorem 4.3 and experiments: "
            "the recursion, its restarts, the clip C2·‖x_r − x_{r−1}‖, Rényi composition; its text could not be had",
            "code": "none is public",
        },
        "deviations": (
            "The last iterate is reported; the paper's bound is of one at random, from memory.",
            "How privacy is shared between gradients and differences is an option; the paper's follows its theory.",
        ),
        "constants": {
            "rate": {"here": 0.5, "authors": "not known; in units of 1/L here"},
            "rounds": {"here": 100, "authors": "Θ(1 + L/ε_opt + …), theorem 4.3"},
            "restart": {
                "here": 0,
                "authors": "T = Θ((G²√d / (L n ε))^(2/3) R), theorem 4.3; 0 is never again after the first round",
            },
            "clip": {"here": 1.0, "authors": "C1, not known"},
            "clip_difference": {
                "here": 0.27,
                "authors": "C2, not known; the smoothness of a sample here",
            },
            "refresh_share": {"here": 0.3, "authors": "by theory, not known"},
            "single": {"here": True, "authors": "single precision is usual"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_reductions_are_equal_iterate_by_iterate",
            "tests/unit/test_objective_privacy.py::test_noise_is_the_least_that_leaves_what_is_allowed",
        ),
    },
)
class Diff2(PrivateDescent):  # type: ignore[misc]  # mypy reads baselines under another name
    """Descend along sums of released differences."""

    def __init__(
        self,
        quiet: bool = False,
        *,
        rate: float = 0.5,
        rounds: int = 100,
        restart: int = 0,
        clip: float = 1.0,
        clip_difference: float = 0.27,
        refresh_share: float = 0.3,
        single: bool = True,
    ) -> None:
        super().__init__(quiet, rate=rate, rounds=rounds, clip=clip, single=single)
        self.restart, self.clip_difference, self.refresh_share = (
            restart or rounds,
            clip_difference,
            refresh_share,
        )

    def _release(self, given: Given) -> Run:
        fresh = math.ceil(self.rounds / self.restart)
        noises = (0.0, 0.0)
        if not self.quiet:
            differences = max(1, self.rounds - fresh)
            noises = (
                noise_for(fresh, given, self.refresh_share),
                noise_for(differences, given, 1.0 - self.refresh_share),
            )
        before = given.start
        for number in range(self.rounds):
            model = (yield Receive()).parts[0].astype(np.float64)
            moved = float(np.linalg.norm(model - before))
            if number % self.restart == 0:
                told = yield PrivateGradient(model, self.clip, noises[0])
            elif moved > 0.0:
                told = yield PrivateGradient(model, self.clip_difference * moved, noises[1], before)
            else:  # it depends on what was released alone: nothing more is revealed
                told = np.zeros(given.dim)
            before = model
            yield Send(SERVER, (told.astype(self.dtype),))

    def _serve(self, given: Given) -> Run:
        model, slope = given.start.copy(), np.zeros(given.dim)
        for number in range(self.rounds):
            for client in given.neighbours:
                yield Send(client, (model.astype(self.dtype),))
            told = yield from self._mean(given)
            slope = told if number % self.restart == 0 else slope + told
            model = model - self.rate / given.smoothness * slope
            yield Report(model)
