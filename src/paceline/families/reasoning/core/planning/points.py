"""Rules for points in which models answer questions, free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.families.reasoning.core.planning.naming import (
    KINDS,
    NO_PARTNER,
    PROCEDURAL,
    RECORDED,
    is_embedded,
    levels_of,
    wrong_model,
    wrong_problems,
)

FIRST_LEVEL = 256
"""Held-out problems of level 1, of 1026; the others have thousands."""
MAX_SAMPLES = 512
"""Votes over more are counted by numbers that a float does not hold."""


def check_questions(params: Params) -> list[str]:
    """Return what is wrong with a point's models, problems and levels, in words."""
    wrong = _check_sources(params)
    if wrong:
        return wrong
    try:
        levels = levels_of(str(params["levels"]))
    except ValueError as error:
        return [str(error)]
    questions, samples = int(str(params["questions"])), int(str(params["samples"]))
    if samples > MAX_SAMPLES:
        return [f"{number_of(samples, 'sample')}; at most {MAX_SAMPLES}"]
    if not is_embedded(str(params["model"])):
        return []
    # Levels are drawn in turn: fewer questions would leave some out, and the point's name would not say so.
    if questions < len(levels):
        return [f"{number_of(questions, 'question')} cannot have {len(levels)} levels"]
    if levels[0] == 1 and questions > FIRST_LEVEL * len(levels):
        return [
            f"level 1 has {FIRST_LEVEL} problems, too few for {number_of(questions, 'question')} "
            f"of {len(levels)} levels"
        ]
    return []


def _check_sources(params: Params) -> list[str]:
    """Return what is wrong with a point's model and problems together."""
    model, problems = str(params["model"]), str(params["problems"])
    wrong = wrong_model(model) or wrong_problems(problems)
    if wrong is not None:
        return [wrong]
    if is_embedded(model):
        own = "weak and strong answer procedural problems alone"
        return [] if problems == PROCEDURAL else [f"problems '{problems}': {own}"]
    if model.startswith(RECORDED):
        return []
    if str(params["partner"]) != NO_PARTNER:
        return [f"partner '{params['partner']}' reads nothing but what embedded models write"]
    if problems == PROCEDURAL:
        return [f"problems '{problems}' are not FORMAT:SOURCE with one of: {', '.join(KINDS)}"]
    return []
