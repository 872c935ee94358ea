"""What a point of training may say: its operations, and one list of parameters for all of them; free of torch.

A suite names a parameter once, whatever it is that ranks share; what only some operations have says so itself
(``only_for``).
"""

from __future__ import annotations

from paceline.base.family import Parameter
from paceline.families.training.api.sizes import ATTENTIONS, SIZES, SOFTMAX
from paceline.families.training.ops.churn import parameters as faults

DATA_PARALLEL, PIPELINE_PARALLEL = "data_parallel", "pipeline_parallel"
SEQUENCE_PARALLEL, FINE_TUNE = "sequence_parallel", "fine_tune"
EXPERT_PARALLEL, EXPERT_INFERENCE = "expert_parallel", "expert_inference"
CHECKPOINT, CHURN = "checkpoint", faults.CHURN
WITH_EXPERTS = (EXPERT_PARALLEL, EXPERT_INFERENCE)
OPERATIONS = (
    *(DATA_PARALLEL, PIPELINE_PARALLEL, SEQUENCE_PARALLEL),
    *WITH_EXPERTS,
    *(FINE_TUNE, CHECKPOINT, CHURN),
)
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
