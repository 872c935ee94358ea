"""What runs, counts and judges: nothing in it may be replaced by a technique."""

from __future__ import annotations

from types import ModuleType

from paceline.families.reasoning import (
    archive,
    estimates,
    executor,
    judging,
    lineage,
    models,
    outside,
    pairs,
    pool,
    problems,
    reading,
    replay,
    requests,
    seat,
    service,
    setting,
    sources,
    textual,
    votes,
)
from paceline.families.reasoning.tools import actions, runtime, world

SEALED: tuple[ModuleType, ...] = (
    *(archive, estimates, executor, judging, lineage, models, outside, pairs),
    *(pool, problems, reading, replay, requests, seat, service, setting, sources, textual, votes),
    *(actions, runtime, world),
)
