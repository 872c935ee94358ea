"""What a technique must prove before it is timed, on draws of weights and data of its own.

Always: an exact technique follows one process that trains on the whole batch, step by step, with the point's optimiser
and with plain SGD (Adam hides the scale of gradients). With ``proof: all`` (conformance) also: two runs from one seed
have the same bits; so does a run that was saved inside a round and at its end, each time taken up by a new replica;
ranks' models are the same when the technique says so, and at no other time (``agreement``); and with the options under
which its paper makes it so it equals synchronous training, or does in the mean of many steps (``bias``). An operation
may have more proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.model import Transformer
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.memory.transients import Transients
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.core.proofs import agreement, bias, oracle
from paceline.families.training.core.proofs.dispersions import prove_diagnosis
from paceline.families.training.core.proofs.observed_run import ObservedRun, difference, observe
from paceline.families.training.core.proofs.repeatability import (
    Repeated,
    deterministic,
    leave_repeated,
    noise_of,
    own_deviation,
)
from paceline.families.training.core.proofs.sandbox import LIBRARIES, Sandbox, make_sandbox
from paceline.families.training.core.proofs.serial import flat, leave_gradients, make_serial, take_up
from paceline.worker.ranks.session import Block, Case, CaseError, Session

DECLARE = "; a technique that is meant to lose something declares exact: False"
STEPS = 3
SGD_RATE = 0.5
PROOF_STEPS = 12
PROOF_OPTIONS: Mapping[str, Any] = {"sync_every": 3, "warmup_share": 0.5}
"""Steps of a proof, and what is other in it for techniques with rounds or a warm-up: both parts must occur, and a share
of so few steps would freeze a variance that is nothing yet (1-bit Adam then diverges on one draw in ten)."""
SAVED_AFTER = (7, 8)
"""Steps of a proof, from 0, after which it is saved, where there is something to lose: inside the third round, when
replicas are apart, outer momenta and errors of compression are not zero, and what overlaps travels; and at that round's
end, when what is exchanged in the next forward still waits."""
EXACT_PROOF_STEPS, EXACT_SAVED_AFTER = 6, (2, 3)
"""The same of techniques whose every step is held against one process: they have no rounds, and what a checkpoint may
forget (moments, shares, what travels) is there after the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a technique's proofs have shown."""

    compared: int
    """Steps, passes or states that were held against the harness's own."""
    transient_bytes: float | None
    """Most that one step had made and not yet freed, on the worst rank; None where it cannot be counted."""
    uncounted: str | None = None
    """Why it cannot be."""


Proof = Callable[[Session, Block, Case, Setting], int]
"""Proves something of a technique; returns the number of steps, passes or states that it compared."""


def prove(
    session: Session, block: Block, case: Case, setting: Setting, *, more: Sequence[Proof] = ()
) -> Proved:
    """Prove a technique, which also warms it up.

    What follows one process is held against it in every launch, on weights and data of its own; the rest is proved
    once in a run.

    Args:
        session: The rank.
        block: The block.
        case: The technique.
        setting: The point's, with seeds for proofs alone.
        more: What its operation has proved beside.

    Raises:
        CaseError: ``incorrect``: it is not what it says; or what the technique raised.
    """
    session.begin(block, case.label, "gate")
    with deterministic(setting):
        return _prove(session, block, case, setting, more)


def _prove(session: Session, block: Block, case: Case, setting: Setting, more: Sequence[Proof]) -> Proved:
    info = session.loaded(case).info
    assert info is not None
    promised = info.promised(Training)
    counted = Transients() if counts_transients(case, setting) else None
    exact = is_exact(promised, info.options, case)
    compared = 0
    if exact:
        # The point's own optimiser, in every launch: weights and data are drawn anew for each.
        compared += _equals_serial(session, block, case, setting, "", counted=counted)
    else:
        _warm_up(session, block, case, setting, counted)
    transient = None if counted is None else _worst(session, counted.peak_bytes)
    key = f"gate/{block.block}/{case.case_id}"
    # The rest once in a run, by its first launch: code cannot change within one.
    earlier = session.earlier_proof(key)
    if earlier is None:
        # Plain SGD as well: Adam's step is the same for gradients that are all
        # twice as large, so a sum would pass for a mean.
        once = _equals_serial(session, block, case, _plain(setting), " with plain SGD") if exact else 0
        once += sum(proof(session, block, case, setting) for proof in more)
        once += _prove_more(session, block, case, setting)
        session.tell_proof(key, {"compared": once})
        compared += once
    else:
        compared += int(earlier["compared"])
    what = "a compiler" if setting.compiled else "PyTorch's own modules"
    reason = f"{what} may make what no operation shows" if counted is None else None
    return Proved(compared=compared, transient_bytes=transient, uncounted=reason)


def is_exact(promised: Training, defaults: Mapping[str, Any], case: Case) -> bool:
    """Tell whether every step must equal one process on the whole batch, with the options that the case has.

    An option ends that only where it is not what it is by default: a technique that says it is exact is held to it.
    """
    rounding = promised.inexact_with.items()
    # Only a value that differs from the default: a technique cannot excuse its default behaviour as rounding.
    ended = any(case.options.get(name, defaults[name]) == value != defaults[name] for name, value in rounding)
    return promised.exact and not ended


def counts_transients(case: Case, setting: Setting) -> bool:
    """Tell whether what a step makes can be seen: compilers and libraries make things that nobody else is told of."""
    return not setting.compiled and case.module not in LIBRARIES


def _worst(session: Session, number: float) -> float:
    return max(rank[0][0] for rank in session.control.gather([[float(number)]]))


def _prove_more(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Prove what a technique adds, and with ``proof: all`` everything; return the number compared."""
    info = session.loaded(case).info
    assert info is not None
    promised, compared = info.promised(Training), 0
    if promised.diagnoses:
        compared += prove_diagnosis(session, block, case, setting, steps=STEPS)
    if block.params["proof"] == "brief":
        return compared
    steps, saved_after = PROOF_STEPS, SAVED_AFTER
    if is_exact(promised, info.options, case):
        steps, saved_after = EXACT_PROOF_STEPS, EXACT_SAVED_AFTER
    short = replace(setting, steps=steps)
    # Short rounds and warm-ups, so that a proof's few steps contain their ends.
    quick = _with_options(case, PROOF_OPTIONS, known=info.options)
    run = partial(observe, session, block, quick, short, kept_from=min(saved_after))
    whole = run()
    # Held against the uninterrupted run at every step from the first save on, not only at the end: errors may cancel.
    resumed = run(saved_after=saved_after)
    what = "a run that was saved and taken up again has"
    lost = difference(session, whole, resumed, what, bitwise=promised.bitwise)
    # What is the same bit by bit after it was taken up again is the same from one seed, too. Otherwise a run that
    # nothing interrupts tells chance from what was not saved.
    drawn = None
    if lost is not None or not promised.bitwise:
        drawn = difference(session, whole, run(), "two runs from one seed have")
    if drawn or lost:
        raise CaseError("incorrect", str(drawn or lost))
    _agrees(session, promised, quick, whole)
    equal = promised.equals_ddp
    if equal is not None and (equal.max_ranks is None or session.world_size <= equal.max_ranks):
        under = _plain(short) if equal.optimizer == "sgd" else replace(short, optimizer=equal.optimizer)
        # Arguments need not be options: this is the only place that may set them.
        special = replace(case, options={**case.options, **equal.arguments})
        text = f" with {dict(equal.arguments)}"
        compared += _equals_serial(session, block, special, under, text, late=equal.late)
    if promised.unbiased_with is not None:
        compared += _unbiased(session, block, case, setting, promised.unbiased_with)
    return compared


def _agrees(session: Session, promised: Training, case: Case, observed: ObservedRun) -> None:
    """Hold the steps at which ranks' models were the same against what a technique says of them."""
    if session.world_size == 1:
        return
    schedule = promised.schedule
    wrong = agreement.breach(schedule, case.options)
    if wrong is not None:
        raise CaseError("refused", wrong)
    everyone = [text.split() for text in session.control.gather_text(" ".join(observed.digests))]
    period = int(case.options.get(agreement.PERIOD, 1))
    found = agreement.mismatch(schedule, list(zip(*everyone, strict=True)), period, observed.round_ends)
    if found is not None:
        raise CaseError("incorrect", found)


def _plain(setting: Setting) -> Setting:
    return replace(setting, optimizer="sgd", peak_rate=SGD_RATE, warmup_steps=0)


def _with_options(case: Case, options: Mapping[str, Any], *, known: Mapping[str, Any]) -> Case:
    return replace(case, options={**case.options, **{k: v for k, v in options.items() if k in known}})


def _equals_serial(
    session: Session,
    block: Block,
    case: Case,
    setting: Setting,
    when: str,
    *,
    counted: Transients | None = None,
    late: bool = False,
) -> int:
    """Compare a few steps with one process on the whole batch; return their number. The last may be counted.

    Every step begins from the technique's own weights, so that what rounding moved in one does not grow in the next.
    Where a step's result is shipped late, it is compared after the next step, whose gradients were taken at it.
    """
    sandbox = make_sandbox(session, block, case, setting)
    serial = make_serial(session, setting)
    compare: Callable[[], None] = lambda: take_up(serial, sandbox.weights())  # noqa: E731 - the first of several
    for step in range(STEPS):
        whole = _decided_batch(session, setting, serial, step)
        rows = list(setting.rows(session.rank, session.world_size))
        sandbox.step(whole[rows], step, counted=counted if step + 1 == STEPS else None)
        if late:
            compare()
        # The length of the exact step is what distances are relative to, so its beginning must be kept.
        begin = [w.clone() for w in serial.weights()]
        serial.set_rate(serial.task.rate(step))
        repeated = leave_repeated(serial, setting, whole, session.world_size)
        serial.update(step)
        text = f"step {step + 1}{when}"
        compare = partial(_compare, session, sandbox, setting, serial, begin, step, text, repeated)
        if not late:
            compare()
    sandbox.finish()
    if late:
        compare()
    return STEPS


def _compare(
    session: Session,
    sandbox: Sandbox,
    setting: Setting,
    serial: Replica,
    begin: Sequence[Tensor],
    step: int,
    when: str,
    repeated: Repeated,
) -> None:
    """Hold a technique's weights against one process's after a step, and let that one go on from them."""
    # From the serial process's moments, after its step: a technique must not widen its own tolerance.
    parameters, places = list(serial.model.parameters()), oracle.last_place(serial.weights())
    steady, allowed = (
        [
            a + b
            for a, b in zip(
                oracle.rounding_share(serial.optimizer, parameters, step, noise), places, strict=True
            )
        ]
        for noise in (None, noise_of(serial, repeated))
    )
    own = own_deviation(
        session, setting, serial, repeated, begin=begin, allowed=steady, widened=allowed, step=step
    )
    found_weights = sandbox.weights()
    problem = None
    # The reference first: where one process diverges, nothing can be held against the technique.
    if not all(bool(torch.isfinite(w).all()) for w in serial.weights()):
        problem = f"diverged: {when}: one process on the whole batch has weights that are not finite"
    else:
        # Narrow gradients are rounded share by share, which the tight bound for plain SGD does not allow for.
        plain = setting.optimizer == "sgd" and not setting.narrow
        far = oracle.distance_from_step(found_weights, serial.weights(), begin, allowed, plain=plain, own=own)
        problem = None if far is None else f"{when}: {far} beside one process on the whole batch{DECLARE}"
    found = session.control.first_problem(problem)
    if found is not None:
        raise CaseError("incorrect", found)
    # On from the technique's weights: one step's rounding must not be amplified by the next and be taken for an error.
    take_up(serial, found_weights)


def _decided_batch(session: Session, setting: Setting, serial: Replica, step: int) -> Tensor:
    """Return a step's batch, drawn anew where what the model makes of it hangs on rounding."""
    rows, model = range(setting.batch_size), serial.model
    batch = setting.batch(step, rows)
    for draw in range(1, setting.proof_draws):
        assert isinstance(model, Transformer)
        with torch.no_grad():
            model(batch[:, :-1].to(setting.device).long())
        # All ranks or none: a rank that drew again alone would train on another batch.
        if session.control.agree(setting.decided(model)):
            break
        batch = setting.batch(step + draw * STEPS, rows)
    return batch


def _unbiased(
    session: Session, block: Block, case: Case, setting: Setting, arguments: Mapping[str, Any]
) -> int:
    """Compare the mean of many steps on one batch with one process's, where single steps are drawn around it."""
    special = replace(case, options={**case.options, **arguments})
    under = replace(_plain(setting), peak_rate=bias.RATE, steps=bias.DRAWS)
    sandbox, serial = make_sandbox(session, block, special, under), make_serial(session, under)
    # One batch for all draws: the steps then differ by the technique's draws alone.
    whole = under.batch(0, range(under.batch_size))
    rows = list(under.rows(session.rank, session.world_size))
    errors, lengths = [], []
    take_up(serial, sandbox.weights())
    for step in range(bias.DRAWS):
        begin = flat(serial.weights())
        serial.set_rate(serial.task.rate(step))
        leave_gradients(serial, under, whole, session.world_size)
        serial.update(step)
        sandbox.step(whole[rows], step)
        exact, shipped = flat(serial.weights()), sandbox.weights()
        # Each error is beside the exact step from the same weights, so that errors do not pile up from draw to draw.
        errors.append(flat(shipped) - exact)
        lengths.append(float((exact - begin).double().norm()))
        take_up(serial, shipped)
    sandbox.finish()
    wrong = bias.problem(errors, lengths)
    found = session.control.first_problem(None if wrong is None else f"with {dict(arguments)} {wrong}")
    if found is not None:
        raise CaseError("incorrect", found)
    return bias.DRAWS


def _warm_up(
    session: Session, block: Block, case: Case, setting: Setting, counted: Transients | None
) -> None:
    """Let a technique take a few steps with which nothing is compared; the last may be counted."""
    sandbox = make_sandbox(session, block, case, setting)
    rows = setting.rows(session.rank, session.world_size)
    for step in range(STEPS):
        sandbox.step(setting.batch(step, rows), step, counted=counted if step + 1 == STEPS else None)
    sandbox.finish()
    sandbox.weights()
