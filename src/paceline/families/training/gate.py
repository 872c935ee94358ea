"""What a technique must prove before it is timed, on draws of weights and data of its own.

Always: an exact technique follows one process that trains on the whole batch, step by step, with the point's optimiser
and with plain SGD (Adam hides the scale of gradients). With ``proof: all`` (conformance) also: two runs from one seed
end with the same bits; so does a run that was saved inside a round and at its end, each time taken up by a new replica;
with the options under which its paper makes it so it equals synchronous training; and gradients that ``rider`` catches
on their way are this rank's own. What a probing technique of ``fine_tune`` proves is in ``fine_tuning.joining``, what a
technique that checkpoints proves in ``checkpointing.proof``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paceline.families.training import oracle
from paceline.families.training.checkpointing.proof import prove_checkpoints
from paceline.families.training.expert.layer import expert_layers
from paceline.families.training.expert.reading import prove_reading
from paceline.families.training.fine_tuning import joining
from paceline.families.training.replica import Replica
from paceline.families.training.rider import Rider, distance, make_rider
from paceline.families.training.seat import LIBRARIES, Seat, make_seat
from paceline.families.training.setting import Setting
from paceline.families.training.spec import CHECKPOINT, EXPERT_INFERENCE, FINE_TUNE
from paceline.families.training.transients import Transients
from paceline.worker.session import Block, Case, CaseError, Session

STEPS = 3
DECIDED = 1e-6
"""Least distance of two logits of a gate in a proof: below, rounding may send a token elsewhere than the reference."""
DRAWS = 16
SGD_RATE = 0.5
SEEN_TOLERANCE = 1e-4
"""Of a gradient's norm; the same sums on the same rank give the same bits, and means over ranks lie far away."""
PROOF_STEPS = 12
PROOF_OPTIONS: Mapping[str, Any] = {"sync_every": 3, "warmup_share": 0.5}
"""Steps of a proof, and what is other in it for techniques with rounds or a warm-up: both parts must occur, and a share
of so few steps would freeze a variance that is nothing yet (1-bit Adam then diverges on one draw in ten)."""
SAVED_AFTER = (7, 8)
"""Steps of a proof, from 0, after which it is saved, where there is something to lose: inside the third round, when
replicas are apart, outer momenta and errors of compression are not zero, and what overlaps travels; and at that round's
end, when what is exchanged in the next forward still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a technique's proofs have shown."""

    compared: int
    """Steps, passes or states that were held against the harness's own."""
    transient_bytes: float | None
    """Most that one step had made and not yet freed, on the worst rank; None where it cannot be counted."""


def prove(session: Session, block: Block, case: Case, setting: Setting) -> Proved:
    """Prove a technique, which also warms it up.

    Args:
        session: The rank.
        block: The block.
        case: The technique.
        setting: The point's, with seeds for proofs alone.

    Raises:
        CaseError: ``incorrect``: it is not what it says; or what the technique raised.
    """
    session.begin(block, case.label, "gate")
    info = session.loaded(case).info
    assert info is not None
    if block.params["op"] == EXPERT_INFERENCE:
        return Proved(compared=prove_reading(session, block, case, setting), transient_bytes=None)
    counted = Transients() if counts_transients(case, setting) else None
    if is_exact(info.properties, info.options, case):
        compared = _equals_serial(session, block, case, setting, "", counted=counted)
        compared += _equals_serial(session, block, case, _plain(setting), " with plain SGD")
    else:
        compared = 0
        _run(session, block, case, setting, steps=STEPS, counted=counted)
    transient = None if counted is None else _worst(session, counted.peak_bytes)
    compared += _prove_more(session, block, case, setting)
    return Proved(compared=compared, transient_bytes=transient)


def is_exact(properties: Mapping[str, Any], defaults: Mapping[str, Any], case: Case) -> bool:
    """Tell whether every step must equal one process on the whole batch, with the options that the case has.

    An option ends that only where it is not what it is by default: a technique that says it is exact is held to it.
    """
    rounding: Mapping[str, Any] = properties.get("inexact_with") or {}
    ended = any(case.options.get(n, defaults[n]) == v != defaults[n] for n, v in rounding.items())
    return bool(properties.get("exact")) and not ended


def counts_transients(case: Case, setting: Setting) -> bool:
    """Tell whether what a step makes can be seen: compilers and libraries make things that nobody else is told of."""
    return not setting.compiled and case.module not in LIBRARIES


def _worst(session: Session, number: float) -> float:
    return max(rank[0][0] for rank in session.control.gather([[float(number)]]))


def _prove_more(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Prove what an operation or a technique adds, and with ``proof: all`` everything; return the number compared."""
    info = session.loaded(case).info
    assert info is not None
    compared = 0
    if block.params["op"] == FINE_TUNE:
        compared += joining.prove(session, block, case, setting)
    if block.params["op"] == CHECKPOINT:
        compared += prove_checkpoints(session, block, case, setting)
    if info.properties.get("diagnoses"):
        compared += _diagnoses(session, block, case, setting)
    if block.params["proof"] == "brief":
        return compared
    if is_exact(info.properties, info.options, case):
        compared += _seen_on_the_way(session, block, case, setting)
    short = replace(setting, steps=PROOF_STEPS)
    quick = _with_options(case, PROOF_OPTIONS, known=info.options)
    whole = _run(session, block, quick, short)
    again = _run(session, block, quick, short)
    bitwise = bool(info.properties.get("bitwise", True))
    _same(session, whole, again, "two runs from one seed end with different weights")
    resumed = _run(session, block, quick, short, saved_after=SAVED_AFTER)
    text = "a run that was saved and taken up again ends with different weights"
    _same(session, whole, resumed, text, bitwise=bitwise)
    equal: Mapping[str, Any] = info.properties.get("equals_ddp") or {}
    if equal and session.world_size <= equal.get("max_ranks", session.world_size):
        under = _plain(short) if equal["optimizer"] == "sgd" else replace(short, optimizer=equal["optimizer"])
        special = replace(case, options={**case.options, **equal["arguments"]})
        text, late = f" with {equal['arguments']}", bool(equal.get("late"))
        compared += _equals_serial(session, block, special, under, text, late=late)
    return compared


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
    seat = make_seat(session, block, case, setting)
    serial = Replica(setting.task(rank=0, world_size=1), session.comm())
    compare: Callable[[], None] = partial(_take_up, serial, seat)
    for step in range(STEPS):
        whole = _decided_batch(session, setting, serial, step)
        rows = list(setting.rows(session.rank, session.world_size))
        seat.step(whole[rows], step, counted=counted if step + 1 == STEPS else None)
        if late:
            compare()
        begin = [w.clone() for w in serial.weights()]
        serial.set_rate(serial.task.rate(step))
        _serial_gradients(serial, setting, whole, session.world_size)
        serial.update(step)
        compare = partial(_compare, session, seat, serial, begin, step, f"step {step + 1}{when}")
        if not late:
            compare()
    seat.finish()
    if late:
        compare()
    return STEPS


def _take_up(serial: Replica, seat: Seat) -> None:
    """Let one process begin from a technique's own weights."""
    for weight, own in zip(serial.weights(), seat.weights(), strict=True):
        weight.copy_(own)


def _compare(
    session: Session, seat: Seat, serial: Replica, begin: Sequence[Tensor], step: int, when: str
) -> None:
    """Hold a technique's weights against one process's after a step, and let that one go on from them."""
    shares = oracle.rounding_share(serial.optimizer, list(serial.model.parameters()), step)
    allowed = [a + b for a, b in zip(shares, oracle.last_place(serial.weights()), strict=True)]
    found_weights = seat.weights()
    distance = oracle.relative_distance(found_weights, serial.weights(), begin, allowed)
    problem = None
    if not all(bool(torch.isfinite(w).all()) for w in serial.weights()):
        problem = f"diverged: {when}: one process on the whole batch has weights that are not finite"
    elif not distance <= oracle.EXACT_TOLERANCE:
        problem = f"{when}: {distance:.2g} of the way beside one process on the whole batch"
    found = session.control.first_problem(problem)
    if found is not None:
        raise CaseError("incorrect", found)
    for weight, own in zip(serial.weights(), found_weights, strict=True):
        weight.copy_(own)


def _serial_gradients(serial: Replica, setting: Setting, whole_BS: Tensor, world_size: int) -> None:
    """Leave the gradients of the whole batch in one process's replica.

    Narrow dtypes round the gradients of every share, so that the whole batch at once would give others: shares are then
    worked through one by one, and averaged in float64.
    """
    device = setting.device
    if not setting.by_share:
        serial.forward_backward(whole_BS.to(device).long())
        return
    sums = [torch.zeros_like(p, dtype=torch.float64) for p in serial.model.parameters()]
    for rank in range(world_size):
        serial.forward_backward(whole_BS[list(setting.rows(rank, world_size))].to(device).long())
        for total, parameter in zip(sums, serial.model.parameters(), strict=True):
            total.add_(_gradient(parameter))
    for total, parameter in zip(sums, serial.model.parameters(), strict=True):
        _gradient(parameter).copy_(total / world_size)


def _decided_batch(session: Session, setting: Setting, serial: Replica, step: int) -> Tensor:
    """Return a step's batch, drawn anew where some token's way hangs on the rounding of its gate's logits."""
    rows = range(setting.batch_size)
    layers = expert_layers(serial.model)
    batch = setting.batch(step, rows)
    for draw in range(1, DRAWS if layers else 1):
        with torch.no_grad():
            serial.model(batch[:, :-1].to(setting.device).long())
        if session.control.agree(min(layer.closest for layer in layers) >= DECIDED):
            break
        batch = setting.batch(step + draw * STEPS, rows)
    return batch


def _diagnoses(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Compare what a technique finds out about ranks with one process that trains on each rank's share."""
    seat = make_seat(session, block, case, setting)
    serial = Replica(setting.task(rank=0, world_size=1), session.comm())
    for step in range(STEPS):
        for weight, own in zip(serial.weights(), seat.weights(), strict=True):
            weight.copy_(own)
        whole = setting.batch(step, range(setting.batch_size))
        seat.step(whole[session.rank :: session.world_size], step)
        losses, gradients = [], []
        for rank in range(session.world_size):
            own = whole[rank :: session.world_size].to(setting.device).long()
            loss = serial.forward_backward(own)
            assert loss is not None
            losses.append(float(loss))
            gradients.append(torch.cat([_gradient(p).reshape(-1) for p in serial.model.parameters()]))
        with seat.watch():
            said = seat.diagnosis()
        problem = None
        for name, true in oracle.dispersion(losses, gradients).items():
            if not oracle.agrees(said[name], true):
                problem = f"step {step + 1}: {name} is {true:.4g}, and not {said[name]:.4g}"
        found = session.control.first_problem(problem)
        if found is not None:
            raise CaseError("incorrect", found)
    seat.finish()
    return STEPS


def _seen_on_the_way(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Compare gradients that are caught during backward with those of one process on this rank's rows alone."""
    seat = make_seat(session, block, case, setting)
    rider = make_rider(session, block, case, seat)
    if rider is None or not rider.caught:
        return 0
    serial = Replica(setting.task(rank=0, world_size=1), session.comm())
    parameters = list(serial.model.parameters())
    own = Rider(parameters, rider.seed)
    for step in range(STEPS):
        for weight, given in zip(serial.weights(), seat.weights(), strict=True):
            weight.copy_(given)
        rows = setting.batch(step, range(setting.batch_size))[session.rank :: session.world_size]
        rider.listen()
        seat.step(rows, step)
        rider.note(None)
        serial.forward_backward(rows.to(setting.device).long())
        own.note([_gradient(p) for p in parameters])
        apart = distance(rider.notes[-1], own.notes[-1])
        seen = (
            f"step {step + 1}: gradients that are caught are {apart:.2g} of their norm from this rank's own"
        )
        found = session.control.first_problem(None if apart <= SEEN_TOLERANCE else seen)
        if found is not None:
            raise CaseError("incorrect", found)
    seat.finish()
    return STEPS


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _run(
    session: Session,
    block: Block,
    case: Case,
    setting: Setting,
    *,
    steps: int | None = None,
    saved_after: Collection[int] = (),
    counted: Transients | None = None,
) -> list[Tensor]:
    """Train some or all steps of a setting; after some of them a new replica goes on from what the last one saved."""
    last = (steps or setting.steps) - 1
    seat = make_seat(session, block, case, setting)
    rows = setting.rows(session.rank, session.world_size)
    for step in range(steps or setting.steps):
        seat.step(setting.batch(step, rows), step, counted=counted if step == last else None)
        if step in saved_after:
            seat = _taken_up(session, block, case, setting, seat)
    seat.finish()
    return [w.clone() for w in seat.weights()]


def _taken_up(session: Session, block: Block, case: Case, setting: Setting, seat: Seat) -> Seat:
    """Return a new replica that goes on from a checkpoint of another."""
    with seat.watch():
        seat.replica.pause()
        state = seat.replica.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    given = torch.load(file, weights_only=True)
    fresh = make_seat(session, block, case, setting)
    with fresh.watch():
        fresh.replica.load_state_dict(given)
    return fresh


def _same(
    session: Session, left: list[Tensor], right: list[Tensor], reason: str, *, bitwise: bool = True
) -> None:
    if not all(bool(torch.isfinite(w).all()) for w in (*left, *right)):
        equal, reason = False, "diverged: weights are not finite after a proof"
    elif bitwise:
        equal = all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    else:
        equal = oracle.relative_distance(left, right) <= oracle.CLOSE
    found = session.control.first_problem(None if equal else reason)
    if found is not None:
        raise CaseError("incorrect", found)
