"""Replays a log with the peak rate in every step."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte

from paceline import technique
from paceline.families.training.api.fine_tuning.probing import Entry
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="replays-at-the-peak-rate",
    family="training",
    implements=("fine_tune",),
    summary="forgets the schedule when it joins",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class ReplaysAtThePeakRate(JustOneByte):
    """Right for who is there from the first step."""

    def replay(self, log: Sequence[Entry]) -> None:
        """Take the steps of a log."""
        self.set_rate(self.task.peak_rate)
        for entry in log:
            self.apply(entry.step, entry.members, entry.codes)
            self.next_step.fill_(entry.step + 1)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
