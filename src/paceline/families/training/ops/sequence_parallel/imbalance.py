"""How evenly ranks that share sequences have dealt out attention's operations."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from paceline.families.training.api.sequence.replica import SequenceReplica
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.unchanged import passes_are_the_familys
from paceline.families.training.ops.sequence_parallel.flops import attention_flops


class Imbalance(Callback):
    """Counts a forward and backward more, when all else has been counted.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session, self.sandbox, self.batches = trial.session, trial.sandbox, trial.batches
        self._own: float | None = None

    def ended(self) -> None:
        """Count the operations of attention, where forward and backward are the family's."""
        sandbox = self.sandbox
        if not passes_are_the_familys(sandbox.replica, (SequenceReplica,)):
            return
        sequences_BS = self.batches[-1].to(sandbox.replica.task.device).long()

        def run() -> None:
            with sandbox.watch():
                sandbox.replica.comm.begin_call()
                sandbox.replica.forward_backward(sequences_BS)

        self._own = attention_flops(run)
        sandbox.check_left()

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return the busiest rank's operations over the mean."""
        if self._own is None:
            return {}
        everyone = [rank[0][0] for rank in self.session.control.gather([[self._own]])]
        if not any(everyone):
            outcome.absent["flop_imbalance"] = "torch's counter knows none of its operators"
            return {}
        return {"flop_imbalance": {"samples": [max(everyone) / fmean(everyone)]}}
