"""How far the losses of ranks lie apart that read sequences of their own, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import pstdev
from typing import Any

from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.figures import ROW, window_means
from paceline.families.training.core.proofs import oracle
from paceline.worker.ranks.session import CaseError

NAME = "loss_dispersion"


class Losses(Callback):
    """Compares ranks' losses, and what a technique says of them.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session = trial.session

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return the standard deviation of losses, as means over windows.

        Raises:
            CaseError: ``incorrect``: the technique says another, of some step.
        """
        if self.session.world_size == 1:
            return {}
        steps = [int(row[ROW.index("steps")]) for row in outcome.windows[0]]
        everyone = self.session.control.gather([outcome.trained.losses])
        present = ([r[0][i] for r in everyone if not math.isnan(r[0][i])] for i in range(sum(steps)))
        dispersion = [pstdev(losses) if losses else 0.0 for losses in present]
        said = outcome.trained.diagnoses.get(NAME, dispersion)
        for step, (own, true) in enumerate(zip(said, dispersion, strict=True)):
            if not oracle.agrees(own, true):
                raise CaseError("incorrect", f"step {step + 1}: {NAME} is {true:.4g}, and not {own:.4g}")
        return {NAME: {"samples": window_means(dispersion, steps)}}
