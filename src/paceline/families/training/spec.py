"""Parameters of the training family and the rules for its points, free of torch."""

from __future__ import annotations

from paceline.families.training.metric_specs import DERIVED, METRICS
from paceline.families.training.sizes import SIZES, vocabulary
from paceline.family import CurveSpec, Family, FrontierSpec, Parameter, Params, SplitSpec

DATA_PARALLEL, PIPELINE_PARALLEL = "data_parallel", "pipeline_parallel"
SEQUENCE_PARALLEL = "sequence_parallel"
OPERATIONS = (DATA_PARALLEL, PIPELINE_PARALLEL, SEQUENCE_PARALLEL)
WHOLE_BATCH = frozenset({PIPELINE_PARALLEL, SEQUENCE_PARALLEL})
"""Operations in which every rank reads the whole batch: ranks share one model's work, and not the sequences."""
DATA_PARALLEL_ALONE = {"corrupt": "nothing", "alike": 0.0, "slow_factor": 1.0}
"""Parameters that only ranks with batches of their own can have, and the value that means nothing."""
OPTIMIZERS = ("adamw", "sgd")
SHARE_ROUNDING = 1e-6
CURVE_AXES = (("tokens", "token"), ("seconds", "s"), ("bytes", "B"))

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="What ranks share: data_parallel, the sequences of a step; pipeline_parallel, the layers of a "
        "model; sequence_parallel, the positions of every sequence.",
        required=True,
        choices=OPERATIONS,
    ),
    Parameter(name="size", kind="choice", doc="Size of the model.", default="tiny", choices=tuple(SIZES)),
    Parameter(
        name="data",
        kind="text",
        doc="markov: a seeded synthetic language of known entropy rate; bytes: the running Python's standard "
        "library, byte by byte; bytes:PATH: files below a path; hf:NAME@REVISION: the training split of a dataset of "
        "the hub; hf:FOLDER: of a local folder in one of its formats.",
        default="markov",
    ),
    Parameter(name="ranks", kind="count", doc="Number of ranks.", default=2, minimum=1),
    Parameter(name="link", kind="text", doc="A link of the runner; default: the runner's own.", default=None),
    Parameter(name="dtype", kind="choice", doc="Element type.", default="float32", choices=("float32",)),
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
    Parameter(name="context", kind="count", doc="Symbols that a sequence predicts.", default=64, minimum=2),
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
        name="beside",
        kind="choice",
        doc="What else trains in turn: bare-script is the same with PyTorch alone.",
        default="nothing",
        choices=("nothing", "bare-script"),
    ),
    Parameter(
        name="slow_factor",
        kind="number",
        doc="The last rank computes this many times as long.",
        default=1.0,
        minimum=1.0,
    ),
    Parameter(
        name="corrupt",
        kind="choice",
        doc="Whose data is bad: from half of the run on the last rank reads symbols drawn at random.",
        default="nothing",
        choices=("nothing", "last-rank"),
    ),
    Parameter(
        name="alike",
        kind="number",
        doc="Share of a step's sequences in which all ranks read the same: 1 is one order for all, 0 one each.",
        default=0.0,
        minimum=0.0,
    ),
    Parameter(
        name="target_excess",
        kind="number",
        doc="Loss above the entropy rate that counts as the target (markov).",
        default=None,
        minimum=0.0,
    ),
)


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    problems: list[str] = []
    ranks, batch, steps = _int(params, "ranks"), _int(params, "batch"), _int(params, "steps")
    microbatches = _int(params, "microbatches")
    if params["op"] == PIPELINE_PARALLEL:
        if batch % microbatches:
            problems.append(f"batch {batch} cannot be split into {microbatches} microbatches")
    elif microbatches > 1:
        problems.append(f"microbatches are for {PIPELINE_PARALLEL}")
    if params["op"] in WHOLE_BATCH:
        problems += [
            f"{name} is for {DATA_PARALLEL}: ranks of {params['op']} have no batches of their own"
            for name, nothing in DATA_PARALLEL_ALONE.items()
            if params[name] != nothing
        ]
        rows = batch
    else:
        rows = batch // ranks
        if batch % ranks:
            problems.append(f"batch {batch} cannot be split between {ranks} ranks")
    if steps < 2 * _int(params, "window"):
        problems.append(
            f"steps {steps} holds fewer than two windows of {params['window']}: the first is warm-up"
        )
    if steps < _int(params, "evaluations"):
        problems.append(f"{params['evaluations']} evaluations do not fit into {steps} steps")
    alike = params["alike"]
    assert isinstance(alike, int | float)
    if alike > 1:
        problems.append(f"alike is a share, at most 1, and not {alike}")
    elif abs(alike * rows - round(alike * rows)) > SHARE_ROUNDING:
        problems.append(f"alike {alike} of {rows} sequences a rank is no whole number")
    data = str(params["data"])
    if data not in ("markov", "bytes") and not data.startswith(("bytes:", "hf:")):
        problems.append(
            f"data '{data}' is not one of: markov, bytes, bytes:PATH, hf:NAME@REVISION, hf:FOLDER"
        )
    if params["target_excess"] is not None and data != "markov":
        problems.append("target_excess needs data with a known entropy rate: markov")
    return problems


def _estimate_s(params: Params) -> float:
    """Seconds of one technique's training, from the model's operations at 10 Gflop/s a rank."""
    size = SIZES[str(params["size"])]
    tokens = _int(params, "steps") * _int(params, "batch") * _int(params, "context")
    operations = size.flops_per_token(vocabulary(str(params["data"])), _int(params, "context"))
    return 2.0 + tokens * operations / 2e10 + _int(params, "steps") * 0.01


def _int(params: Params, key: str) -> int:
    value = params[key]
    assert isinstance(value, int)
    return value


FAMILY = Family(
    name="training",
    summary="Training of one language model on several ranks: time, bytes, memory and loss at equal tokens.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("token_s", "eval_loss", "wire_bytes"),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    derived=DERIVED,
    curves=(
        CurveSpec(quantity="excess_loss", unit="nat", over=CURVE_AXES),
        CurveSpec(quantity="eval_loss", unit="nat", over=CURVE_AXES),
    ),
    swept=("time_to_target",),
    frontiers=(
        FrontierSpec(across="wire_bytes", up="excess_loss"),
        FrontierSpec(across="kernel_bytes_total", up="excess_loss"),
        FrontierSpec(across="token_s", up="excess_loss"),
    ),
    splits=(
        SplitSpec(title="one step", parts=("compute_s", "gradients_s", "update_s", "parameters_s")),
        SplitSpec(
            title="a rank's memory",
            parts=("parameter_bytes", "gradient_bytes", "optimizer_bytes", "extra_bytes", "scratch_bytes"),
        ),
    ),
)
