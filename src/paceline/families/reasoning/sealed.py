"""What runs, counts and judges: nothing in it may be replaced by a technique."""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType

from paceline.families.reasoning import (
    answer_text,
    archive,
    estimates,
    executor,
    grading,
    grading_service,
    judging,
    language,
    lineage,
    models,
    outside,
    pairs,
    pool,
    problem_files,
    problem_rows,
    problems,
    reading,
    recorded,
    replay,
    requests,
    seat,
    service,
    setting,
    sources,
    textual,
    trace_files,
    votes,
)
from paceline.families.reasoning.backends import (
    endpoint_errors,
    openai_model,
    pretrained,
    slot_cache,
    token_texts,
    transformers_model,
)
from paceline.families.reasoning.reasoner import (
    cache,
    decoder,
    engine,
    network,
    sampling,
    scoring,
    sharing,
)
from paceline.families.reasoning.tools import actions, runtime, world

_SEALED: tuple[ModuleType, ...] = (
    *(archive, estimates, executor, judging, lineage, models, outside, pairs),
    *(pool, problems, reading, replay, requests, seat, service, setting, sources, textual, votes),
    *(answer_text, grading, grading_service, language, problem_files, problem_rows, recorded, trace_files),
    *(endpoint_errors, openai_model, pretrained, slot_cache, token_texts, transformers_model),
    *(cache, decoder, engine, network, sampling, scoring, sharing),
    *(actions, runtime, world),
)


def sealed(operations: Collection[str]) -> tuple[ModuleType, ...]:
    """Return what techniques may build on, the same for all operations."""
    del operations
    return _SEALED
