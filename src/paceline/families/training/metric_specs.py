"""Metrics of the training family and their contracts, free of torch.

It is long because it is a list: what techniques of one operation alone have stands beside what all of them have, in the
order in which reports show it.
"""

from __future__ import annotations

from paceline.families.training.sizes import size_of, vocabulary
from paceline.family import DerivedMetric, Metric, Params

_STEP = {
    "timer": "the host's performance counter around a part of a step, the device idle at both ends of a window",
    "sample": "seconds of one step on the slowest rank, averaged over a window of steps",
    "excluded": "drawing of batches, copies of weights for evaluation",
}
_BYTES = {
    "counter": "payload bytes that pass through the communicator, headers excluded",
    "ranks": "the rank that sends most",
}
_LOSS = {
    "model": "the weights that would be shipped at that moment, copied between steps and evaluated after training",
    "data": "held-out sequences, drawn after techniques were imported, equal for all techniques of a block",
    "value": "mean cross-entropy of the next symbol over all positions, natural logarithm; mean over ranks",
}
_TARGET = {
    "target": "target_excess above the entropy rate, by linear interpolation between evaluations",
    "miss": "absent, with the loss that was reached",
}
_VIRTUAL = {
    "timer": "processor time of the rank's thread in every pass of one step, which a technique cannot know",
    "sample": "the schedule, played with these times; not a measured duration",
}
_MAKESPAN = {
    "predicted": "the schedule, played with the mean processor seconds of each kind of pass in each stage, a core for "
    "every rank, and messages that take no time",
    "sample": "a step; three or four of a run, which a technique cannot know",
}
_LOG = {
    "log": "the codes that ranks sent in every step, copied from their messages by the communicator",
    "ranks": "the largest",
}
_CHECKPOINT = {
    "timer": "the host's performance counter around the technique's calls in the family's loop",
    "schedule": "in every second window a checkpoint after every step; the other windows have none",
    "oracle": "what is restored has the bits of the copy that the harness made at that step",
}
_STATE = {
    "counted": "storages reachable from the technique after its gradient exchange, each once, by walking its objects",
    "when": "the last step and three others that a technique cannot know; the largest",
    "ranks": "the rank that holds most",
}


def _step_part(name: str, doc: str) -> Metric:
    return Metric(name=name, unit="s", better="lower", doc=doc, contract=_STEP, statistic="mean")


_DIAGNOSED = {
    "sample": "as the technique found it in each step, mean over a window",
    "proof": "in the gate, beside the gradients of every rank's sequences computed by one process",
}


_SEEN = {
    "sample": "the step before an evaluation, from what forward_backward left on every rank, by the harness",
    "exclusions": "looking is no part of any time",
    "sketch": "4096 places, random signs",
}


def _state(name: str, doc: str) -> Metric:
    return Metric(name=name, unit="B", better="lower", doc=doc, contract=_STATE, statistic="max")


METRICS: tuple[Metric, ...] = (
    Metric(
        name="token_s",
        unit="s",
        better="lower",
        doc="Wall-clock time of one token of the global batch, everything included that training needs.",
        contract={
            "timer": "the host's performance counter, the device idle at both ends of a window",
            "sample": "seconds of a window of steps on the slowest rank, over the window's tokens of all ranks",
            "warm-up": "a few steps of another replica of the technique",
            "excluded": "drawing of batches, copies of weights for evaluation, evaluation",
            "included": "communication that is still under way after the last step",
        },
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="bare_token_s",
        unit="s",
        better="lower",
        doc="The same of a script with PyTorch alone, in turn with the harness's windows (calibration).",
        contract={"timer": "as token_s", "sample": "as token_s"},
        statistic="mean",
    ),
    Metric(
        name="eval_loss",
        unit="nat",
        better="lower",
        doc="Loss on held-out text after the last step; its samples are the curve over the evaluations.",
        contract=_LOSS,
        statistic="last",
        compared_by="difference",
        margin=0.01,
        suspicious_gain=0.2,
    ),
    Metric(
        name="excess_loss",
        unit="nat",
        better="lower",
        doc="eval_loss above the entropy rate of the synthetic language, which no model can undercut.",
        contract=_LOSS | {"limit": "entropy rate of the chain, from its stationary distribution"},
        statistic="last",
        compared_by="difference",
        margin=0.01,
    ),
    Metric(
        name="train_loss",
        unit="nat",
        better="lower",
        doc="Loss on the batches of the last window, before each update; its samples are the windows.",
        contract={
            "sample": "as forward_backward returned it, mean over the steps of a window and over ranks"
        },
        statistic="last",
        compared_by="difference",
    ),
    Metric(
        name="wire_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends in one step, averaged over the whole run.",
        contract=_BYTES | {"sample": "bytes of the run over its steps"},
        statistic="mean",
    ),
    Metric(
        name="peak_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends in the step in which it sends most.",
        contract=_BYTES | {"sample": "the largest step of the run"},
        statistic="max",
    ),
    Metric(
        name="messages",
        unit="messages",
        better="lower",
        doc="Messages that the busiest rank sends in one step, averaged over the whole run.",
        contract=_BYTES | {"sample": "messages of the run over its steps"},
        statistic="mean",
    ),
    Metric(
        name="backend_calls",
        unit="calls",
        better="lower",
        doc="Calls of the backend's own collectives in one step, averaged over the whole run; their messages are not "
        "known.",
        contract={
            "counter": "calls through the communicator, those of DistributedDataParallel's reducer among them",
            "ranks": "the rank that calls most",
            "sample": "calls of the run over its steps; absent where a library calls by itself",
        },
        statistic="mean",
    ),
    Metric(
        name="pass_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sends during forward and backward of one step: activations and their "
        "gradients, where the family's own code runs both.",
        contract=_BYTES | {"sample": "bytes of all forward_backward calls over their number"},
        statistic="mean",
    ),
    Metric(
        name="pass_link_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that go from one rank to another, for the pair and direction that carries most, during "
        "forward and backward of one step, where the family's own code runs both.",
        contract=_BYTES
        | {
            "ranks": "the ordered pair that carries most",
            "sample": "bytes of all forward_backward calls over their number",
        },
        statistic="mean",
    ),
    Metric(
        name="flop_imbalance",
        unit="ratio",
        better="lower",
        doc="Operations of attention, forward and backward, on the rank that has most over the mean of ranks that "
        "share sequences.",
        contract={
            "counter": "torch's counter of operators, during one more forward and backward after training",
            "counted": "batched products and fused attention; products with weights have no batch",
        },
        statistic="mean",
    ),
    Metric(
        name="moved_bytes",
        unit="B",
        better="lower",
        doc="Weights that the busiest rank came to own between two steps, mean over steps.",
        contract={
            "counted": "runs of weights that a rank owns after a step, as a checkpoint has them, and did not before"
        },
        statistic="mean",
    ),
    Metric(
        name="hops",
        unit="moves",
        better="lower",
        doc="How often a token's next expert lies on another rank than its last one, mean over tokens: of the model's "
        "layers less one.",
        contract={
            "routes": "those of all tokens of the run, which techniques could not foresee",
            "ranks": "of experts: the rank that holds an expert's weights when the run has ended",
        },
        statistic="mean",
    ),
    Metric(
        name="row_messages",
        unit="messages",
        better="lower",
        doc="Messages that hold a token's row or more, which the busiest rank sends in one step.",
        contract={
            "counter": "sent messages of at least 4 bytes times the model's width",
            "sample": "of the run over its steps",
        },
        statistic="mean",
    ),
    Metric(
        name="dispatch_s",
        unit="s",
        better="lower",
        doc="Putting tokens into the slots of their experts and gathering them, for one layer, forward and backward.",
        contract={
            "timer": "the host's performance counter around the technique's encode and decode and their backward",
            "data": "tokens and routing drawn anew for every sample, after training; each result is checked",
            "sample": "the slowest rank",
        },
    ),
    Metric(
        name="kernel_bytes_total",
        unit="B",
        better="lower",
        doc="Bytes that the kernel counted on all ranks' interfaces in one step, averaged over the run.",
        contract={
            "counter": "transmitted bytes of the ranks' interfaces for data, frame headers included",
            "sample": "difference over the whole run, over its steps; only where each rank has interfaces of its own",
        },
        statistic="mean",
    ),
    Metric(
        name="mfu",
        unit="ratio",
        better="higher",
        doc="Operations of forward and backward in one second over the datasheet's peak of all ranks' devices.",
        contract={
            "operations": "6 for each weight in a product and token, 6·layers·context·width for causal attention; "
            "recomputation is not counted",
            "peak": "dense, of the operands' dtype, by the vendor's datasheet; absent where none is listed",
            "sample": "a window of steps on the slowest rank",
        },
        statistic="mean",
    ),
    _step_part(
        "compute_s",
        "Forward and backward of one step; for overlapping techniques what they do meanwhile, too.",
    ),
    _step_part("gradients_s", "Exchange of gradients in one step."),
    _step_part("update_s", "The optimiser in one step."),
    _step_part("parameters_s", "Exchange of parameters after the update in one step."),
    _step_part("communicate_s", "Time inside the communicator in one step, wherever it falls."),
    Metric(
        name="idle_share",
        unit="ratio",
        better="lower",
        doc="Share of a step that a rank spends inside the communicator, mean over ranks: the bubble of a pipeline.",
        contract={
            "timer": "host clock around every send, receive and wait of each rank",
            "sample": "mean over ranks of a window's seconds inside the communicator over its seconds",
        },
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="virtual_s",
        unit="s",
        better="lower",
        doc="Virtual: forward and backward of one step as the simulator plays them from the processor's seconds of "
        "every measured pass, as if each rank had a core of its own and messages took no time.",
        contract=_VIRTUAL,
        statistic="mean",
    ),
    Metric(
        name="virtual_idle_share",
        unit="ratio",
        better="lower",
        doc="Virtual: the bubble of that play, the share of the makespan in which a rank does nothing, mean over "
        "ranks.",
        contract=_VIRTUAL,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="makespan_ratio",
        unit="ratio",
        better="neither",
        doc="Measured time of forward and backward of one step over what the simulator foretells: 1 where it is right.",
        contract=_MAKESPAN
        | {
            "measured": "from the first pass's begin to the last pass's end over all ranks, host clock; with fewer "
            "cores than ranks it holds waiting for a core, too"
        },
    ),
    Metric(
        name="virtual_makespan_ratio",
        unit="ratio",
        better="neither",
        doc="Virtual: virtual_s over what the simulator foretells, for machines that have fewer cores than ranks.",
        contract=_MAKESPAN | {"played": "virtual_s, from every pass's own processor seconds"},
    ),
    _state(
        "state_bytes",
        "All state that a rank holds: parameters, gradients, the optimiser's and what is kept beside it. A technique "
        "that states its closed form is refused where it holds more or less.",
    ),
    _state("parameter_bytes", "Parameters that a rank holds."),
    _state("gradient_bytes", "Gradients that a rank holds after their exchange."),
    _state("optimizer_bytes", "State of the optimiser that a rank holds."),
    _state(
        "extra_bytes",
        "State that a rank keeps beside the optimiser's: outer momentum, residuals, copies of weights.",
    ),
    _state("scratch_bytes", "Buffers that a rank holds beside all state."),
    Metric(
        name="transient_bytes",
        unit="B",
        better="lower",
        doc="Most that one step had made and not yet freed at one time: activations, gradients and buffers beside what "
        "is held between steps; parameters that come and go count while they are there.",
        contract={
            "counter": "storages that torch's operations return, from the first to the last reference",
            "when": "the last of the first proof's steps, which has the point's model and batch",
            "ranks": "the rank that needs most",
        },
        statistic="max",
    ),
    Metric(
        name="device_peak_bytes",
        unit="B",
        better="lower",
        doc="Most of a device's memory that was given out at once during training: state, activations, buffers, and "
        "the copies of weights that are kept for evaluation.",
        contract={
            "counter": "the peak of the device's own allocator, reset before the first step; absent on the host",
            "ranks": "the rank that needs most",
        },
        statistic="max",
    ),
    Metric(
        name="divergence",
        unit="ratio",
        better="lower",
        doc="Largest distance of a replica's weights from the mean of all, over the mean's norm, after the last step.",
        contract={"norm": "Euclidean over all parameters, in float64"},
        statistic="max",
        compared_by="difference",
    ),
    Metric(
        name="recovery_steps",
        unit="steps",
        better="lower",
        doc="Steps from the return of a rank that was away until its weights are no farther from the mean of all "
        "ranks' than in the last 25 steps before it left.",
        contract={
            "distance": "Euclidean over all parameters, over the mean's norm, from the weights it would ship"
        },
        statistic="max",
    ),
    Metric(
        name="loss_dispersion",
        unit="nat",
        better="lower",
        doc="Standard deviation over ranks of their losses in a step; its samples are means over windows.",
        contract={"sample": "as forward_backward returned them on every rank, compared by the harness"},
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gradient_norm_dispersion",
        unit="ratio",
        better="lower",
        doc="Standard deviation over ranks of their gradients' norms before averaging, over their mean.",
        contract=_DIAGNOSED,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="gradient_cosine",
        unit="ratio",
        better="higher",
        doc="Mean cosine between the gradients of two ranks before averaging, weighted by their norms.",
        contract=_DIAGNOSED,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="link_clock_ratio",
        unit="ratio",
        better="lower",
        doc="Training's seconds over those of a virtual clock of the shaped link; below 1 where exchanges are hidden.",
        contract={
            "clock": "seconds outside the communicator, slowest rank; bytes of the busiest over 0.93 of the link's "
            "rate; its messages times the delay",
            "exclusions": "nothing is hidden and nobody waits for a slower rank",
        },
    ),
    Metric(
        name="seen_norm_dispersion",
        unit="ratio",
        better="lower",
        doc="Standard deviation over ranks of their own gradients' norms, over their mean, with any technique.",
        contract=_SEEN,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="seen_gradient_cosine",
        unit="ratio",
        better="higher",
        doc="Mean cosine between two ranks' own gradients, with any technique.",
        contract=_SEEN,
        statistic="mean",
        compared_by="difference",
    ),
    Metric(
        name="blocking_s",
        unit="s",
        better="lower",
        doc="Seconds for which one checkpoint holds training up.",
        contract=_CHECKPOINT
        | {
            "sample": "seconds in save and before_update, over the checkpoints of a window, on the slowest rank"
        }
        | {"last": "no computation hides what before_update waits for after a window's last checkpoint"},
        statistic="mean",
        margin=0.05,
    ),
    Metric(
        name="checkpoint_overhead",
        unit="1",
        better="lower",
        doc="By what share of a step training takes longer with a checkpoint after every step.",
        contract=_CHECKPOINT
        | {
            "value": "median seconds of a step in windows with checkpoints over those in windows without, less one"
        }
        | {"included": "waiting for the disk at a window's end"},
        statistic="mean",
        compared_by="difference",
        margin=0.02,
    ),
    Metric(
        name="checkpoint_bytes",
        unit="B",
        better="lower",
        doc="Bytes of one checkpoint on disk, of all ranks.",
        contract={"counted": "sizes of its files, manifests included, by the harness"},
        statistic="mean",
    ),
    Metric(
        name="restore_s",
        unit="s",
        better="lower",
        doc="Seconds to find the newest sound checkpoint, digests included, and take it up on a new replica.",
        contract=_CHECKPOINT | {"cache": "files are in the host's page cache", "ranks": "the slowest"},
        statistic="mean",
    ),
    Metric(
        name="loss_fall",
        unit="nat",
        better="higher",
        doc="By how much fine-tuning has lowered eval_loss: that of its start less that after the last step.",
        contract=_LOSS,
        statistic="last",
        margin=0.02,
    ),
    Metric(
        name="payload_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that one rank sends to one other for one slope of the loss (fine_tune).",
        contract=_BYTES | {"sample": "bytes of the run to the rank that gets most, over steps and probes"},
        statistic="mean",
    ),
    Metric(
        name="replay_difference",
        unit="1",
        better="lower",
        doc="Largest difference between an element of the trained weights and of those that a new replica makes of the "
        "initial ones and the log; anything but 0 is incorrect.",
        contract=_LOG
        | {"oracle": "the harness replays the log, too, and compares every copy of the weights"},
        statistic="max",
        compared_by="difference",
    ),
    Metric(
        name="replay_s",
        unit="s",
        better="lower",
        doc="What joining at the end costs: seconds in which a new replica replays the log of the whole run.",
        contract=_LOG | {"timer": "host clock around the replay, all ranks at once"},
        statistic="max",
    ),
    Metric(
        name="log_bytes",
        unit="B",
        better="lower",
        doc="Bytes of the log of the whole run, which is all that a rank that joins late is sent.",
        contract=_LOG,
        statistic="max",
    ),
    Metric(
        name="time_to_target",
        unit="s",
        better="lower",
        doc="Training time until the target loss.",
        contract=_TARGET,
        statistic="last",
    ),
    Metric(
        name="bytes_to_target",
        unit="B",
        better="lower",
        doc="Payload bytes that the busiest rank sent until the target loss.",
        contract=_TARGET,
        statistic="last",
    ),
)


def experts_of(params: Params) -> dict[str, int]:
    """Return the parameters of experts that the closed forms of a size take; none where layers have a perceptron."""
    experts, top_k = params.get("experts"), params.get("top_k", 1)
    return {"experts": int(experts), "top_k": int(top_k or 1)} if experts else {}


def _tokens_per_s(params: Params, seconds: float) -> float | None:
    return 1.0 / seconds if seconds > 0 else None


def _bytes_per_token(params: Params, sent: float) -> float | None:
    batch, context = params["batch"], params["context"]
    assert isinstance(batch, int)
    assert isinstance(context, int)
    return sent / (batch * context)


def _model_flops(params: Params, seconds: float) -> float | None:
    context, ranks = params["context"], params["ranks"]
    assert isinstance(context, int)
    assert isinstance(ranks, int)
    if seconds <= 0:
        return None
    symbols = vocabulary(str(params["data"]))
    operations = size_of(params).flops_per_token(symbols, context, **experts_of(params))
    return operations / seconds / ranks


DERIVED: tuple[DerivedMetric, ...] = (
    DerivedMetric(
        name="tokens_per_s", unit="token/s", source="token_s", formula="1 / token_s", compute=_tokens_per_s
    ),
    DerivedMetric(
        name="bytes_per_token",
        unit="B",
        source="wire_bytes",
        formula="wire_bytes / (batch × context)",
        compute=_bytes_per_token,
    ),
    DerivedMetric(
        name="model_flops_per_rank",
        unit="FLOP/s",
        source="token_s",
        formula="operations of a token's forward and backward / token_s / ranks",
        compute=_model_flops,
    ),
)
