"""The passes of some steps, which a technique cannot know, as the executor notes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.families.training.api.pipeline.executor import Pass, PipelineReplica
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.unchanged import is_unchanged
from paceline.families.training.ops.pipeline_parallel import timeline

OWN_OF_A_PIPELINE = frozenset(
    {"__init__", "schedule", "state_dict", "load_state_dict", "__doc__", "__module__"}
)


def passes_of(replica: Replica) -> list[Pass] | None:
    """Return the passes of the forward and backward just done; None where a technique does anything but give a table.

    Passes on an accelerator are asynchronous: the host's clock says nothing about them.
    """
    if not isinstance(replica, PipelineReplica) or replica.task.device.type != "cpu":
        return None
    names = [name for name in vars(PipelineReplica) if name not in OWN_OF_A_PIPELINE]
    return list(replica.passes) if is_unchanged(replica, PipelineReplica, names) else None


class Passes(Callback):
    """Notes the passes of the steps after which memory is counted.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session, self.replica = trial.session, trial.sandbox.replica
        self.stops_after_backward = trial.count_after
        self.noted: list[list[Pass]] = []
        self._played: timeline.Timeline | None = None

    def after_backward(self, step: int) -> int:
        """Note a step's passes, where they are the executor's own."""
        if passes := passes_of(self.replica):
            self.noted.append(passes)
        return 0

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return what the simulator makes of them."""
        self._played = timeline.gather(self.session, self.noted)
        return self._played.metrics() if self._played else {}

    def accounting(self) -> Mapping[str, Any]:
        """Return the first step's timeline."""
        return {"timeline": self._played.rows} if self._played else {}
