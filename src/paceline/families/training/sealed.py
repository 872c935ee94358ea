"""What trains, counts and judges, some of which techniques build on: nothing in it may be replaced by one of them."""

from __future__ import annotations

from types import ModuleType

from paceline.families.training import arm, figures, gate, model, oracle, replica, seat, setting, unchanged
from paceline.families.training.pipeline import deferred, executor, schedule, simulator, timeline
from paceline.families.training.sequence import replica as sequence_replica
from paceline.worker import comm

SEALED: tuple[ModuleType, ...] = (
    *(arm, figures, gate, model, oracle, replica, seat, setting, unchanged),
    *(deferred, executor, schedule, simulator, timeline, sequence_replica, comm),
)
