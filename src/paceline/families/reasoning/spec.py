"""Parameters of the reasoning family and the rules for its points, free of torch."""

from __future__ import annotations

from paceline.families.reasoning.metric_specs import METRICS
from paceline.family import Family, FrontierSpec, Parameter, Params

SOLVE = "solve"
OPERATIONS = (SOLVE,)
MODELS = ("weak", "strong")
NO_PARTNER = "none"
NUM_LEVELS = 10
FIRST_LEVEL = 256
"""Held-out problems of level 1, of 1026; the others have thousands."""
MAX_SAMPLES = 512
"""Votes over more are counted by numbers that a float does not hold."""
TOKENS_PER_S = 3000.0
"""Decoded tokens a second of the embedded reasoner on two slow cores, for estimates alone."""
TRACE_TOKENS = 90

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="solve: questions are answered by traces of one model, of which a technique may draw several.",
        required=True,
        choices=OPERATIONS,
    ),
    Parameter(
        name="model",
        kind="choice",
        doc="The embedded reasoner, trained by this project: weak, taught with mistakes, or strong, without most.",
        default="weak",
        choices=MODELS,
    ),
    Parameter(
        name="partner",
        kind="choice",
        doc="Another model that techniques may hand steps over to, or let review them.",
        default=NO_PARTNER,
        choices=(NO_PARTNER, *MODELS),
    ),
    Parameter(
        name="levels",
        kind="text",
        doc="Difficulty of the problems, the number of their operations, as 'LOW-HIGH'.",
        default=f"1-{NUM_LEVELS}",
    ),
    Parameter(name="questions", kind="count", doc="Problems of a launch.", default=100, minimum=1),
    Parameter(name="samples", kind="count", doc="Traces that a question has at most.", default=16, minimum=1),
    Parameter(name="temperature", kind="number", doc="Of sampling.", default=0.8, minimum=0.0),
    Parameter(
        name="orders", kind="count", doc="Orders of the recorded traces for replays.", default=50, minimum=1
    ),
    Parameter(
        name="width",
        kind="count",
        doc="Traces under way up to which further questions are begun.",
        default=128,
        minimum=1,
    ),
)


def levels_of(text: str) -> range:
    """Return the levels that a text such as '1-10' names.

    Raises:
        ValueError: It does not name any.
    """
    low, dash, high = text.partition("-")
    if not (low.isdigit() and (high.isdigit() or not dash)):
        raise ValueError(f"levels '{text}' are not 'LOW-HIGH'")
    found = range(int(low), int(high or low) + 1)
    if not found or found[0] < 1 or found[-1] > NUM_LEVELS:
        raise ValueError(f"levels '{text}' are not between 1 and {NUM_LEVELS}")
    return found


def check(params: Params) -> list[str]:
    """Return what is wrong with a fully resolved point, in words."""
    try:
        levels = levels_of(str(params["levels"]))
    except ValueError as error:
        return [str(error)]
    questions, samples = int(str(params["questions"])), int(str(params["samples"]))
    if questions < len(levels):
        return [f"{questions} questions cannot have {len(levels)} levels"]
    if levels[0] == 1 and questions > FIRST_LEVEL * len(levels):
        return [
            f"level 1 has {FIRST_LEVEL} problems, too few for {questions} questions of {len(levels)} levels"
        ]
    if samples > MAX_SAMPLES:
        return [f"{samples} samples; at most {MAX_SAMPLES}"]
    return []


def _estimate_s(params: Params) -> float:
    tokens = int(str(params["questions"])) * int(str(params["samples"])) * TRACE_TOKENS
    return 1.5 * tokens / TOKENS_PER_S


FAMILY = Family(
    name="reasoning",
    summary="Test-time methods that draw several traces of one model: accuracy against tokens, and their chain.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("tokens_reordered", "accuracy_reordered", "critical_tokens"),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    swept=("tokens_reordered",),
    answers=("accuracy", "accuracy_reordered"),
    frontiers=(
        FrontierSpec(across="tokens_reordered", up="accuracy_reordered", beneath="votes"),
        FrontierSpec(across="critical_tokens", up="accuracy_reordered"),
    ),
)
