"""Parameters of points in which models answer questions, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.reasoning.core.planning.naming import (
    ALL_LEVELS,
    MODELS,
    NO_PARTNER,
    PROCEDURAL,
    wrong_levels,
    wrong_model,
    wrong_problems,
)

MODEL = Parameter(
    name="model",
    kind="text",
    doc="weak or strong: the embedded reasoner, taught with mistakes or without most; transformers:FOLDER or "
    "transformers:NAME@REVISION: a causal model of the hub's kind; openai:URL#MODEL: one behind an endpoint; "
    "recorded:FOLDER: the traces that an earlier run has kept, on which rules answer without a network.",
    default="weak",
    form=wrong_model,
)
PROBLEMS = Parameter(
    name="problems",
    kind="text",
    doc="procedural: the embedded reasoner's own; FORMAT:SOURCE with gsm8k, math-500, aime or gpqa and a file, or "
    "a data set of the hub as NAME@REVISION, for all other models; with ' --allow-partial' behind SOURCE rows that "
    "cannot be read are left out and counted.",
    default=PROCEDURAL,
    form=wrong_problems,
)
CONTEXT = Parameter(
    name="context",
    kind="count",
    doc="Most tokens of a trace with its prompt, of models that are not embedded.",
    default=2048,
    minimum=2,
)
PARTNER = Parameter(
    name="partner",
    kind="choice",
    doc="Another model that techniques may hand steps over to, or let review them.",
    default=NO_PARTNER,
    choices=(NO_PARTNER, *MODELS),
)
LEVELS = Parameter(
    name="levels",
    kind="text",
    doc="Difficulty of the problems, the number of their operations, as 'LOW-HIGH'.",
    default=ALL_LEVELS,
    form=wrong_levels,
)
QUESTIONS = Parameter(name="questions", kind="count", doc="Problems of a launch.", default=100, minimum=1)
SAMPLES = Parameter(
    name="samples",
    kind="count",
    doc="Traces that a question has at most.",
    default=16,
    minimum=1,
)
TEMPERATURE = Parameter(
    name="temperature",
    kind="number",
    doc="Of sampling.",
    default=0.8,
    minimum=0.0,
)
ORDERS = Parameter(
    name="orders",
    kind="count",
    doc="Orders of the recorded traces for replays.",
    default=50,
    minimum=1,
)
WIDTH = Parameter(
    name="width",
    kind="count",
    doc="Traces under way up to which further questions are begun.",
    default=128,
    minimum=1,
)
