"""Parameters that points of several operations have, in groups that stand one after another; free of torch.

A suite names a parameter once, whatever it is that ranks share. What one operation alone has stands in its folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Parameter, Scalar
from paceline.base.files.own_code import DIGITS, is_reference
from paceline.families.training.api.sizes import DIALECTS, MARKOV, SIZES
from paceline.families.training.core.planning.configuration import wrong_size

FLOAT32, EAGER = "float32", "eager"
NONE = "none"
OPTIMIZERS = ("adamw", "sgd")


def wrong_data(data: str) -> str | None:
    """Say what is wrong with the name of data; None where nothing is."""
    kind, colon, where = data.partition(":")
    if data in (MARKOV, "bytes") or (colon and kind in ("bytes", "hf") and where):
        return None
    if colon and kind == DIALECTS and shift_of(where) is not None:
        return None
    if is_own_data(data):
        return None
    known = "markov, dialects:SHIFT, bytes, bytes:PATH, hf:NAME@REVISION, hf:FOLDER, FILE.py:FACTORY, MODULE:FACTORY"
    return f"data '{data}' is not one of: {known}"


OWN_MODEL, OWN_LOSS, SOURCES = "model", "loss", "sources"


def is_own_data(data: str) -> bool:
    """Tell whether the name of data is that of a factory: no kind of data here is called like its module."""
    return data.partition(":")[0] not in ("bytes", "hf", MARKOV, DIALECTS) and is_reference(data)


def wrong_reference(text: str) -> str | None:
    """Say what is wrong with the name of somebody's own object; None where nothing is."""
    return None if is_reference(text) else f"'{text}' is not of the form FILE.py:NAME or MODULE:NAME"


def wrong_digest(text: str) -> str | None:
    """Say what is wrong with a digest of files; None where nothing is."""
    fits = len(text) == DIGITS and set(text) <= set("0123456789abcdef")
    return None if fits else f"'{text}' is no digest: {DIGITS} hexadecimal digits, in quotes"


def shift_of(text: str) -> float | None:
    """Return how far dialects are apart; None where the text is no number above 0 and up to 4."""
    try:
        shift = float(text)
    except ValueError:
        return None
    return shift if 0.0 < shift <= 4.0 else None


OWN: tuple[Parameter, ...] = (
    Parameter(
        name=OWN_MODEL,
        kind="text",
        doc="A module of one's own in the place of the family's: FILE.py:FACTORY beside the suite, or MODULE:FACTORY "
        "([how](howto/train-your-own-model.md)).",
        default=None,
        form=wrong_reference,
        is_code=is_reference,
    ),
    Parameter(
        name=OWN_LOSS,
        kind="text",
        doc="Its loss, named alike: called with its output and the batch's last tensor; default: the module returns "
        "its loss.",
        default=None,
        form=wrong_reference,
        is_code=is_reference,
    ),
    Parameter(
        name=SOURCES,
        kind="text",
        doc="Digest of the files that these names bring along. A plan fills it in; a suite that states it holds them "
        "to it.",
        default=None,
        form=wrong_digest,
    ),
)
"""A model and data of the user's own."""

MODEL: tuple[Parameter, ...] = (
    Parameter(
        name="size",
        kind="choice",
        doc="Size of the model. In data_parallel also hf:FOLDER, the shape in a config.json of Llama's or Qwen2's kind "
        "(no weights), and one that is written out, shape:L12-d768-h12-kv4-ff2048-v32000.",
        default="tiny",
        choices=tuple(SIZES),
        form=wrong_size,
    ),
)

KV_HEADS = Parameter(
    name="kv_heads",
    kind="count",
    doc="Heads of keys and values, each of which serves equally many heads of queries; default: as many.",
    default=None,
    minimum=1,
)

RUN: tuple[Parameter, ...] = (
    Parameter(
        name="data",
        kind="text",
        doc="markov: a seeded synthetic language of known entropy rate; dialects:SHIFT: four of its dialects, of which "
        "four ranks read one each, and each of which adds normal numbers of that deviation to symbols' logits; bytes: "
        "the running Python's standard library, byte by byte; bytes:PATH: a file, or those below a folder; "
        "hf:NAME@REVISION: the training split of a dataset of the hub; hf:FOLDER: of a local folder in one of its "
        "formats; FILE.py:FACTORY or MODULE:FACTORY: batches for a model of one's own "
        "([how](howto/train-your-own-model.md)).",
        default="markov",
        form=wrong_data,
        is_code=is_own_data,
    ),
    Parameter(name="ranks", kind="count", doc="Number of ranks.", default=2, minimum=1),
    Parameter(
        name="link",
        kind="text",
        doc="A link of the runner; default: the runner's own.",
        default=None,
        ours=True,
    ),
    Parameter(
        name="dtype",
        kind="choice",
        doc="What forward and backward multiply in: bfloat16 is mixed precision; weights, gradients and optimiser stay "
        "in float32.",
        default=FLOAT32,
        choices=(FLOAT32, "bfloat16"),
    ),
    Parameter(
        name="mode",
        kind="choice",
        doc="How layers run: eager, or each compiled by torch.compile.",
        default=EAGER,
        choices=(EAGER, "compiled"),
    ),
    Parameter(name="steps", kind="count", doc="Optimiser steps: the token budget.", default=200, minimum=4),
    Parameter(
        name="batch", kind="count", doc="Sequences of one step, over all ranks.", default=16, minimum=1
    ),
    Parameter(
        name="microbatches",
        kind="count",
        doc="Parts in which a pipeline works through a step's sequences.",
        default=1,
        minimum=1,
    ),
)
"""Where a point trains, on what and how long."""

KEPT, RECOMPUTED = "kept", "recomputed"
ACTIVATIONS = Parameter(
    name="activations",
    kind="choice",
    doc="What layers leave for backward: kept, or recomputed layer by layer from each layer's input (activation "
    "checkpointing).",
    default=KEPT,
    choices=(KEPT, RECOMPUTED),
)

EXPERTS = Parameter(
    name="experts",
    kind="count",
    doc="Experts of a layer.",
    default=8,
    minimum=1,
)

TRAINING: tuple[Parameter, ...] = (
    Parameter(
        name="context",
        kind="count",
        doc="Symbols that a sequence predicts, at least 2. With data of one's own, what a sample counts as in tokens; "
        "default there: 1.",
        default=64,
        minimum=1,
    ),
    Parameter(
        name="optimizer", kind="choice", doc="The inner optimiser.", default="adamw", choices=OPTIMIZERS
    ),
    Parameter(name="learning_rate", kind="number", doc="Its peak rate.", default=0.003, minimum=0.0),
    Parameter(
        name="warmup_steps",
        kind="count",
        doc="Steps of linear warm-up; a cosine to a tenth of the peak follows.",
        default=20,
        minimum=0,
    ),
    Parameter(name="window", kind="count", doc="Steps of one sample of throughput.", default=20, minimum=1),
    Parameter(name="evaluations", kind="count", doc="Points of the loss curve.", default=8, minimum=1),
    Parameter(
        name="eval_batch", kind="count", doc="Held-out sequences of an evaluation.", default=128, minimum=1
    ),
    Parameter(
        name="proof",
        kind="choice",
        doc="What a technique proves before it is timed: exactness of its first steps, or all that it says of itself.",
        default="brief",
        choices=("brief", "all"),
    ),
    Parameter(
        name="reference_timer",
        kind="choice",
        doc="What trains in turn with it, to compare times with: bare-script is the same with PyTorch alone.",
        default=NONE,
        choices=(NONE, "bare-script"),
    ),
    Parameter(
        name="slow_factor",
        kind="number",
        doc="The last rank computes this many times as long.",
        default=1.0,
        minimum=1.0,
    ),
    Parameter(
        name="corrupted_rank",
        kind="choice",
        doc="Whose data is bad: from half of the run on the last rank reads symbols drawn at random.",
        default=NONE,
        choices=(NONE, "last-rank"),
    ),
    Parameter(
        name="absent_rank",
        kind="choice",
        doc="Who leaves and comes back: the last rank is away from a third of the run to two thirds.",
        default=NONE,
        choices=(NONE, "last-rank"),
    ),
    Parameter(
        name="data_overlap",
        kind="number",
        doc="Share of a step's sequences in which all ranks read the same: 1 is one order for all, 0 one each.",
        default=0.0,
        minimum=0.0,
    ),
)
"""How it trains, and what is told of it."""

GOAL: tuple[Parameter, ...] = (
    Parameter(
        name="target_excess",
        kind="number",
        doc="Loss above the entropy rate that counts as the target (markov).",
        default=None,
        minimum=0.0,
    ),
    Parameter(
        name="require_convergence",
        kind="flag",
        doc="Whether a run is incorrect whose held-out loss did not fall. false: its losses and bytes count, and no "
        "time, so that an ablation can show that nothing works without a part.",
        default=True,
    ),
)

ONE_PART: Mapping[str, Scalar] = {"microbatches": 1}
"""Of operations whose ranks work through a step's sequences at once."""
ALIKE_RANKS: Mapping[str, Scalar] = {
    "require_convergence": True,
    "corrupted_rank": NONE,
    "data_overlap": 0.0,
    "slow_factor": 1.0,
    "absent_rank": NONE,
    "dtype": FLOAT32,
    "mode": EAGER,
}
"""Of operations whose ranks depend on one another in every step: nobody is slow, wrong or away, and all is float32."""
