"""Times how a technique puts tokens into slots and gathers them again, and checks what it timed.

Shape suffixes as in ``expert.replica``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.expert.replica import ExpertReplica
from paceline.families.training.api.expert.routing import Routing, route
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.ranks.session import CaseError, Session

_clock_ns = time.perf_counter_ns

SAMPLES = 9
"""The first is a warm-up."""
TOLERANCE = 1e-5
"""Distance from the reference, relative to its norm."""


class Dispatch(Callback):
    """Times a technique's exchange of tokens when training has ended.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return the seconds; nothing of techniques of another kind."""
        trial = self.trial
        if not isinstance(trial.sandbox.replica, ExpertReplica):
            return {}
        return {"dispatch_s": {"samples": dispatch_seconds(trial.session, trial.sandbox, trial.setting)}}


def dispatch_seconds(session: Session, sandbox: Sandbox, setting: Setting) -> list[float]:
    """Return the seconds of encode and decode of one layer, forward and backward, on the slowest rank.

    Raises:
        CaseError: ``incorrect``: what was timed is not what it should be.
    """
    replica = sandbox.replica
    assert isinstance(replica, ExpertReplica)
    generator = torch.Generator().manual_seed(session.draw_seed("dispatch"))
    num_sequences = len(setting.rows(session.rank, session.world_size))
    layer = replica.layers[0]
    capacity = layer.capacity(setting.context)
    seconds = []
    for _ in range(SAMPLES):
        shapes = (num_sequences, setting.context), (layer.num_experts, num_sequences, capacity)
        logits, h, g = (
            torch.randn(*shapes[0], width, generator=generator).to(setting.device)
            for width in (layer.num_experts, replica.shape.width, replica.shape.width)
        )
        slots, g_slots = (
            torch.randn(*shapes[1], replica.shape.width, generator=generator).to(setting.device) for _ in "01"
        )
        routing = route(logits, layer.top_k, capacity)
        routing.weights_GTk.requires_grad_()
        session.control.barrier()
        session.device.synchronize()
        with sandbox.watch():
            begin = _clock_ns()
            encoded = replica.encode(h.requires_grad_(), routing)
            encoded.backward(g_slots)  # type: ignore[no-untyped-call]  # torch's own annotation is missing
            decoded = replica.decode(slots.requires_grad_(), routing)
            decoded.backward(g)  # type: ignore[no-untyped-call]  # as above
            session.device.synchronize()
            seconds.append((_clock_ns() - begin) * 1e-9)
        found = [encoded.detach(), decoded.detach(), *map(_taken_gradient, (h, slots, routing.weights_GTk))]
        expected = _reference(h, slots, routing, g_slots, g)
        wrong = next((i for i, (x, y) in enumerate(zip(found, expected, strict=True)) if _apart(x, y)), None)
        names = ("encode", "decode", "encode's gradient", "decode's gradient", "the gate's gradient")
        problem = session.control.first_problem(None if wrong is None else f"{names[wrong]} is wrong")
        if problem is not None:
            raise CaseError("incorrect", problem)
    rows = session.control.gather([seconds])
    return [max(rank[0][i] for rank in rows) for i in range(1, SAMPLES)]


def _reference(h: Tensor, slots: Tensor, routing: Routing, g_slots: Tensor, g: Tensor) -> list[Tensor]:
    """Return what encode, decode and their gradients should be, by plain indexing."""
    sequence, position, choice = routing.kept_GTk.nonzero(as_tuple=True)
    where = (
        routing.experts_GTk[sequence, position, choice],
        sequence,
        routing.places_GTk[sequence, position, choice],
    )
    encoded = torch.zeros_like(slots).index_put(where, h[sequence, position])
    weight_N1 = routing.weights_GTk[sequence, position, choice][:, None]
    made_ND = weight_N1 * slots[where]
    decoded = torch.zeros_like(h).index_put((sequence, position), made_ND, accumulate=True)
    torch.autograd.backward([encoded, decoded], [g_slots, g])
    gradients = map(_taken_gradient, (h, slots, routing.weights_GTk))
    return [encoded.detach(), decoded.detach(), *gradients]


def _taken_gradient(tensor: Tensor) -> Tensor:
    found = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    tensor.grad = None
    return found


def _apart(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return True
    return not float((found - expected).norm()) <= TOLERANCE * float(expected.norm())
