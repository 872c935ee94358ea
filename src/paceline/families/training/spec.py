"""Parameters of the training family and the rules for its points, free of torch.

One list for all operations: a suite names a parameter once, whatever ranks share, and what only some of them have says
so itself (``only_for``). What a point's parameters must be to each other, ``check`` tells; the rest is the family's
description for reports.
"""

from __future__ import annotations

from paceline.families.training.churn import faults
from paceline.families.training.metric_specs import DERIVED, METRICS, experts_of
from paceline.families.training.sizes import ATTENTIONS, SIZES, SOFTMAX, size_of, vocabulary
from paceline.family import CurveSpec, Family, FrontierSpec, Parameter, Params, SplitSpec

DATA_PARALLEL, PIPELINE_PARALLEL = "data_parallel", "pipeline_parallel"
SEQUENCE_PARALLEL, FINE_TUNE = "sequence_parallel", "fine_tune"
EXPERT_PARALLEL, EXPERT_INFERENCE = "expert_parallel", "expert_inference"
CHECKPOINT, CHURN = "checkpoint", faults.CHURN
WITH_EXPERTS = (EXPERT_PARALLEL, EXPERT_INFERENCE)
_SEQUENCES_AGAIN = (FINE_TUNE, CHECKPOINT, CHURN)
OPERATIONS = (DATA_PARALLEL, PIPELINE_PARALLEL, SEQUENCE_PARALLEL, *WITH_EXPERTS, *_SEQUENCES_AGAIN)
WHOLE_BATCH = frozenset({PIPELINE_PARALLEL, SEQUENCE_PARALLEL, EXPERT_INFERENCE})
"""Operations in which every rank reads the whole batch: ranks share one model's work, and not the sequences."""
FLOAT32, EAGER = "float32", "eager"
REQUIRED = "required"
DATA_PARALLEL_ALONE = {
    "learning": REQUIRED,
    "corrupt": "nothing",
    "alike": 0.0,
    "slow_factor": 1.0,
    "away": "nothing",
    "dtype": FLOAT32,
    "mode": EAGER,
}
"""Parameters that only ranks with whole models and batches of their own can have, and the value that means nothing."""
OPTIMIZERS = ("adamw", "sgd")
SHARE_ROUNDING = 1e-6
CURVE_AXES = (("tokens", "token"), ("seconds", "s"), ("bytes", "B"))
COSTS = ("wire_bytes", "kernel_bytes_total", "token_s")
"""What a loss is traded against."""

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="op",
        kind="choice",
        doc="What ranks share: data_parallel, the sequences of a step; pipeline_parallel, the layers of a "
        "model; sequence_parallel, the positions of every sequence; expert_parallel, the experts of every layer; "
        "expert_inference, the same, symbol by symbol and forward alone; fine_tune, sequences again, of a language "
        "that has changed since the model was trained; checkpoint, sequences again, and the state is saved meanwhile; "
        "churn, sequences again, in processes of which one is killed and another comes.",
        required=True,
        choices=OPERATIONS,
    ),
    Parameter(name="size", kind="choice", doc="Size of the model.", default="tiny", choices=tuple(SIZES)),
    Parameter(
        name="attention",
        kind="choice",
        doc="What mixes positions: softmax, or gated-linear, a state that decays by learned gates.",
        default=SOFTMAX,
        choices=ATTENTIONS,
        only_for=(SEQUENCE_PARALLEL,),
    ),
    Parameter(
        name="kv_heads",
        kind="count",
        doc="Heads of keys and values, each of which serves equally many heads of queries; default: as many.",
        default=None,
        only_for=(PIPELINE_PARALLEL, SEQUENCE_PARALLEL, *WITH_EXPERTS),
        minimum=1,
    ),
    Parameter(
        name="data",
        kind="text",
        doc="markov: a seeded synthetic language of known entropy rate; bytes: the running Python's standard "
        "library, byte by byte; bytes:PATH: a file, or those below a folder; hf:NAME@REVISION: the training split of a "
        "dataset of the hub; hf:FOLDER: of a local folder in one of its formats.",
        default="markov",
    ),
    Parameter(name="ranks", kind="count", doc="Number of ranks.", default=2, minimum=1),
    Parameter(name="link", kind="text", doc="A link of the runner; default: the runner's own.", default=None),
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
    Parameter(
        name="experts",
        kind="count",
        doc="Experts of a layer.",
        default=8,
        minimum=1,
        only_for=WITH_EXPERTS,
    ),
    Parameter(
        name="top_k",
        kind="count",
        doc="Experts of a token.",
        default=2,
        minimum=1,
        only_for=(EXPERT_PARALLEL,),
    ),
    Parameter(
        name="capacity",
        kind="number",
        doc="Slots of all experts together, over what all tokens of a sequence would need; tokens without one are "
        "dropped.",
        default=1.25,
        minimum=0.0,
        only_for=(EXPERT_PARALLEL,),
    ),
    Parameter(
        name="routes",
        kind="choice",
        doc="Which experts tokens go to. markov: a layer's expert makes some of the next layer's more probable; "
        "iid: it does not.",
        default="markov",
        choices=("markov", "iid"),
        only_for=(EXPERT_INFERENCE,),
    ),
    Parameter(
        name="affinity",
        kind="number",
        doc="Probability that a token follows one of its expert's three preferences (markov).",
        default=0.8,
        minimum=0.0,
        only_for=(EXPERT_INFERENCE,),
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
        name="away",
        kind="choice",
        doc="Who leaves and comes back: the last rank is away from a third of the run to two thirds.",
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
    faults.FAULT,
    Parameter(
        name="target_excess",
        kind="number",
        doc="Loss above the entropy rate that counts as the target (markov).",
        default=None,
        minimum=0.0,
    ),
    Parameter(
        name="learning",
        kind="choice",
        doc="What a run counts for whose held-out loss did not fall. required: nothing, it is incorrect; measured: its "
        "losses and bytes, and no time, so that an ablation can show that nothing works without a part.",
        default=REQUIRED,
        choices=(REQUIRED, "measured"),
    ),
    Parameter(
        name="tuned",
        kind="choice",
        doc="What fine-tuning trains: all parameters, the gains of norms, or a bias of the head, zero at first.",
        default="bias",
        choices=("all", "gains", "bias"),
        only_for=(FINE_TUNE,),
    ),
    Parameter(
        name="shift",
        kind="number",
        doc="How far the language has changed: standard deviation of the logits that a symbol gains or loses.",
        default=1.0,
        minimum=0.0,
        only_for=(FINE_TUNE,),
    ),
    Parameter(
        name="pretrain_steps",
        kind="count",
        doc="Steps of 16 sequences of the language before its change, by one process, before anything is measured.",
        default=400,
        minimum=1,
        only_for=(FINE_TUNE,),
    ),
    Parameter(
        name="probes",
        kind="count",
        doc="Directions along which a rank measures a slope in one step, each on a part of its sequences.",
        default=1,
        minimum=1,
        only_for=(FINE_TUNE,),
    ),
    Parameter(
        name="probe_distance",
        kind="number",
        doc="How far along a direction of standard normal elements the loss is measured, to both sides.",
        default=0.01,
        minimum=1e-6,
        only_for=(FINE_TUNE,),
    ),
)


PROVED_STEPS = 6
"""Steps of a technique's proofs."""
ESTIMATED_RATE = 8e10
"""Operations a second, for the estimate: what was seen on two cores with models of 0.3 million parameters."""


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
    if params["away"] != "nothing" and ranks < 2:
        problems.append("away needs at least two ranks: somebody must go on")
    if params["op"] != DATA_PARALLEL:
        problems += [
            f"{name} {params[name]} is for {DATA_PARALLEL}, and not for {params['op']}"
            for name, nothing in DATA_PARALLEL_ALONE.items()
            if params[name] != nothing
        ]
    rows = batch
    if params["op"] not in WHOLE_BATCH:
        rows = batch // ranks
        if batch % ranks:
            problems.append(f"batch {batch} cannot be split between {ranks} ranks")
    size = size_of(params)
    if size.heads % size.num_kv_heads:
        problems.append(
            f"kv_heads {size.kv_heads} does not divide the {size.heads} heads of size {params['size']}"
        )
    if params["op"] == FINE_TUNE:
        if rows % _int(params, "probes"):
            problems.append(f"{rows} sequences of a rank cannot be split between {params['probes']} probes")
        if params["data"] != "markov":
            problems.append("fine_tune needs data that can change: markov")
    problems += _check_experts(params) + _check_windows(params)
    problems += faults.problems(params) if params["op"] == CHURN else []
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


def _check_windows(params: Params) -> list[str]:
    """Return what is illegal about the samples of throughput."""
    problems: list[str] = []
    steps = _int(params, "steps")
    if steps < 2 * _int(params, "window"):
        problems.append(
            f"steps {steps} holds fewer than two windows of {params['window']}: the first is warm-up"
        )
    if params["op"] == CHECKPOINT and steps < 3 * _int(params, "window"):
        problems.append(
            f"steps {steps} holds fewer than three windows of {params['window']}: one of them saves"
        )
    return problems


def _check_experts(params: Params) -> list[str]:
    """Return what is illegal where ranks share experts."""
    problems: list[str] = []
    if params["op"] == EXPERT_INFERENCE:
        affinity = params["affinity"]
        assert isinstance(affinity, int | float)
        if affinity > 1:
            problems.append(f"affinity is a probability, at most 1, and not {affinity}")
        if _int(params, "batch") < _int(params, "ranks"):
            problems.append(f"{params['batch']} sequences are too few for {params['ranks']} ranks")
    if params["op"] == EXPERT_PARALLEL and _int(params, "top_k") > _int(params, "experts"):
        problems.append(f"a token cannot go to {params['top_k']} of {params['experts']} experts")
    return problems


def _estimate_s(params: Params) -> float:
    """Seconds of one technique: training, proofs on every rank, evaluations; at what two cores do of small products.

    A rank's proofs are of the whole batch; an evaluation is a third of a step's operations. Waiting for links and for
    cores that other ranks have is left out.
    """
    size, context = size_of(params), _int(params, "context")
    steps, ranks = _int(params, "steps"), _int(params, "ranks")
    operations = size.flops_per_token(vocabulary(str(params["data"])), context, **experts_of(params))
    rows = float((steps + PROVED_STEPS * (1 + ranks)) * _int(params, "batch"))
    rows += (_int(params, "evaluations") + 1) * _int(params, "eval_batch") / 3
    first = faults.PEERS_START_S if params["op"] == CHURN else 2.0
    return first + rows * context * operations / ESTIMATED_RATE + steps * 0.005 * ranks


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
    tuned_metrics=(
        "eval_loss",
        "excess_loss",
        "train_loss",
        "loss_fall",
        "time_to_target",
        "bytes_to_target",
    ),
    scaled=("token_s",),
    frontiers=(
        *(FrontierSpec(across=cost, up="excess_loss") for cost in COSTS),
        *(FrontierSpec(across=cost, up="eval_loss", unless="excess_loss") for cost in COSTS),
    ),
    splits=(
        SplitSpec(title="one step", parts=("compute_s", "gradients_s", "update_s", "parameters_s")),
        SplitSpec(
            title="a rank's memory",
            parts=("parameter_bytes", "gradient_bytes", "optimizer_bytes", "extra_bytes", "scratch_bytes"),
        ),
    ),
)
