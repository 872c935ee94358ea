"""What draws, counts and judges where ranks share a model: nothing in it may be replaced by a technique."""

from __future__ import annotations

from types import ModuleType

from paceline.families.serving import distributing
from paceline.families.serving.engine import core, model, paged, reference, stepper
from paceline.families.serving.sharing import arm, played, script
from paceline.families.serving.simulation import cluster, costs, laws, log, profiling
from paceline.worker import comm

SEALED: tuple[ModuleType, ...] = (
    *(distributing, arm, played, script),
    *(core, model, paged, reference, stepper),
    *(cluster, costs, laws, log, profiling, comm),
)
