"""Parameters of the reasoning family and the rules for its points, free of torch."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal
from urllib.parse import urlsplit

from paceline.base.family import Family, FrontierSpec, Parameter, Params
from paceline.families.reasoning.metric_specs import ANOTHER_MODELS, METRICS

SOLVE, CALL_TOOLS = "solve", "call_tools"
OPERATIONS = (SOLVE, CALL_TOOLS)
MODELS = ("weak", "strong")
FORMS = {
    "transformers": "transformers:FOLDER, transformers:NAME@REVISION",
    "openai": "openai:URL#MODEL",
    "recorded": "recorded:FOLDER",
}
"""What models of other people are named by."""
RECORDED = "recorded:"
"""Begins the name of a model whose traces an earlier run has kept."""
NO_PARTNER = "none"
NUM_LEVELS = 10
ALL_LEVELS = f"1-{NUM_LEVELS}"
PROCEDURAL = "procedural"
KINDS: dict[str, Literal["number", "math", "choice"]] = {
    "gsm8k": "number",
    "math-500": "math",
    "aime": "number",
    "gpqa": "choice",
}
"""Formats of published problems, and the kind of their answers."""
FILE_ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
FIRST_LEVEL = 256
"""Held-out problems of level 1, of 1026; the others have thousands."""
MAX_SAMPLES = 512
"""Votes over more are counted by numbers that a float does not hold."""
TOKENS_PER_S = 3000.0
"""Decoded tokens a second of the embedded reasoner on two slow cores, for estimates alone."""
TRACE_TOKENS = 90


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


def is_embedded(model: str) -> bool:
    """Tell whether a model comes with the package."""
    return model in MODELS


def wrong_model(model: str) -> str | None:
    """Say what is wrong with the name of a model; None where nothing is."""
    kind, colon, where = model.partition(":")
    if is_embedded(model):
        return None
    if not colon or kind not in FORMS:
        return f"model '{model}' is not one of: {', '.join([*MODELS, *FORMS.values()])}"
    if kind == "openai":
        return _wrong_endpoint(where)
    if kind == "recorded" and not PurePath(where).is_absolute():
        return f"model '{model}': traces are named by their absolute path, jobs run in folders of their own"
    name, at, revision = where.rpartition("@")
    if kind == "transformers" and not (PurePath(where).is_absolute() or (name and at and revision)):
        return f"model '{model}' is neither transformers:FOLDER, an absolute path, nor transformers:NAME@REVISION"
    return None


def _wrong_endpoint(where: str) -> str | None:
    """Say what is wrong with URL#MODEL; the address itself is not repeated where it may hold a key."""
    url, _, name = where.rpartition("#")
    try:
        address = urlsplit(url)
        host = address.hostname
    except ValueError:
        return "the endpoint's address is no URL: openai:http://HOST:PORT/v1#MODEL"
    if address.username or address.password or address.query:
        return "the endpoint's address holds a key or a query, which records would show; set OPENAI_API_KEY"
    if not url or not name or address.scheme not in ("http", "https") or not host:
        return f"model 'openai:{where}' is not openai:URL#MODEL, as in openai:http://HOST:PORT/v1#MODEL"
    return None


def wrong_problems(problems: str) -> str | None:
    """Say what is wrong with the name of problems; None where nothing is."""
    if problems == PROCEDURAL:
        return None
    form, _, source = problems.partition(":")
    if form not in KINDS or not source:
        return f"problems '{problems}' are not {PROCEDURAL}, or FORMAT:SOURCE with one of: {', '.join(KINDS)}"
    if source.endswith(FILE_ENDINGS) and not PurePath(source).is_absolute():
        return (
            f"problems '{problems}': a file is named by its absolute path, jobs run in folders of their own"
        )
    return None


def wrong_levels(levels: str) -> str | None:
    """Say what is wrong with levels; None where nothing is."""
    try:
        levels_of(levels)
    except ValueError as error:
        return str(error)
    return None


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="solve: questions are answered by traces of one model, of which a technique may draw several; call_tools: "
        "questions take calls of tools that depend on each other, planned by a scripted language model.",
        required=True,
        choices=OPERATIONS,
    ),
    Parameter(
        name="model",
        kind="text",
        doc="weak or strong: the embedded reasoner, taught with mistakes or without most; transformers:FOLDER or "
        "transformers:NAME@REVISION: a causal model of the hub's kind; openai:URL#MODEL: one behind an endpoint; "
        "recorded:FOLDER: the traces that an earlier run has kept, on which rules answer without a network.",
        default="weak",
        form=wrong_model,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="problems",
        kind="text",
        doc="procedural: the embedded reasoner's own; FORMAT:SOURCE with gsm8k, math-500, aime or gpqa and a file, or "
        "a data set of the hub as NAME@REVISION, for all other models.",
        default=PROCEDURAL,
        form=wrong_problems,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="context",
        kind="count",
        doc="Most tokens of a trace with its prompt, of models that are not embedded.",
        default=2048,
        minimum=2,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="partner",
        kind="choice",
        doc="Another model that techniques may hand steps over to, or let review them.",
        default=NO_PARTNER,
        choices=(NO_PARTNER, *MODELS),
        only_for=(SOLVE,),
    ),
    Parameter(
        name="levels",
        kind="text",
        doc="Difficulty of the problems, the number of their operations, as 'LOW-HIGH'.",
        default=ALL_LEVELS,
        form=wrong_levels,
        only_for=(SOLVE,),
    ),
    Parameter(name="questions", kind="count", doc="Problems of a launch.", default=100, minimum=1),
    Parameter(
        name="samples",
        kind="count",
        doc="Traces that a question has at most.",
        default=16,
        minimum=1,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="temperature", kind="number", doc="Of sampling.", default=0.8, minimum=0.0, only_for=(SOLVE,)
    ),
    Parameter(
        name="orders",
        kind="count",
        doc="Orders of the recorded traces for replays.",
        default=50,
        minimum=1,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="width",
        kind="count",
        doc="Traces under way up to which further questions are begun.",
        default=128,
        minimum=1,
        only_for=(SOLVE,),
    ),
    Parameter(
        name="calls", kind="count", doc="Calls of a question.", default=12, minimum=1, only_for=(CALL_TOOLS,)
    ),
    Parameter(
        name="depth",
        kind="count",
        doc="Layers of calls; those of a layer depend on the one before.",
        default=3,
        minimum=1,
        only_for=(CALL_TOOLS,),
    ),
    Parameter(
        name="replanned",
        kind="flag",
        doc="Whether the last layer can be planned only when all others have their results.",
        default=False,
        only_for=(CALL_TOOLS,),
    ),
    Parameter(
        name="tool_s",
        kind="duration",
        doc="Median duration of a call.",
        default=0.1,
        only_for=(CALL_TOOLS,),
    ),
    Parameter(
        name="thought_s",
        kind="duration",
        doc="What the language model needs before it writes.",
        default=0.05,
        only_for=(CALL_TOOLS,),
    ),
    Parameter(
        name="step_s",
        kind="duration",
        doc="What the language model needs to write one step.",
        default=0.01,
        only_for=(CALL_TOOLS,),
    ),
)


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


def check(params: Params) -> list[str]:
    """Return what is wrong with a fully resolved point, in words."""
    if params["op"] == CALL_TOOLS:
        calls, depth = int(str(params["calls"])), int(str(params["depth"]))
        return [f"{calls} calls cannot have {depth} layers"] if calls < depth else []
    wrong = _check_sources(params)
    if wrong:
        return wrong
    try:
        levels = levels_of(str(params["levels"]))
    except ValueError as error:
        return [str(error)]
    questions, samples = int(str(params["questions"])), int(str(params["samples"]))
    if samples > MAX_SAMPLES:
        return [f"{samples} samples; at most {MAX_SAMPLES}"]
    if not is_embedded(str(params["model"])):
        return []
    if questions < len(levels):
        return [f"{questions} questions cannot have {len(levels)} levels"]
    if levels[0] == 1 and questions > FIRST_LEVEL * len(levels):
        return [
            f"level 1 has {FIRST_LEVEL} problems, too few for {questions} questions of {len(levels)} levels"
        ]
    return []


def _estimate_s(params: Params) -> float | None:
    if params["op"] != CALL_TOOLS and not is_embedded(str(params["model"])):
        return None  # how fast somebody's own model answers, and how long it thinks, shows when it does
    if params["op"] == CALL_TOOLS:
        each = float(str(params["tool_s"])) + float(str(params["thought_s"])) + float(str(params["step_s"]))
        return int(str(params["questions"])) * int(str(params["calls"])) * each
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
        FrontierSpec(
            across="tokens_reordered",
            up="accuracy_reordered",
            beneath="votes",
            beneath_name="plain vote",
            apart="gain_at_equal_tokens",
            apart_reason=ANOTHER_MODELS,
        ),
        FrontierSpec(across="critical_tokens", up="accuracy_reordered"),
    ),
)
