"""Which experts a token goes to, and which tokens an expert has no room for: one rule, whatever the layout.

Shape suffixes: G sequences, T positions, k choices of a token, E experts, C slots of an expert for one sequence.

A gate's softmax gives every token its k most probable experts; a choice counts with its probability (Shazeer et al.,
"Outrageously Large Neural Networks", 2017, without noise). As in GShard (Lepikhin et al., 2021, algorithm 1) capacity
is counted in groups of tokens, so that no rank has to ask another one: here a group is a sequence. Of each sequence an
expert takes C = ⌈factor · k · T / E⌉ tokens, all first choices before the second ones and early positions before late
ones. A choice that finds no slot is dropped: it adds nothing, and the token's stream goes on as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Where the tokens of some sequences go."""

    experts_GTk: Tensor
    """The experts that each token chose, the most probable first."""
    weights_GTk: Tensor
    """What each counts; the gate learns through it."""
    places_GTk: Tensor
    """Slot of each choice in its expert's queue for the sequence; meaningless where it was dropped."""
    kept_GTk: Tensor
    """Whether the expert had room."""
    num_experts: int
    capacity: int
    """C."""


def slots(factor: float, top_k: int, length: int, num_experts: int) -> int:
    """Return C, at least one, and at most as many as a sequence has tokens."""
    # Less a rounding error: a product whose last bit lies above a whole number must not cost a slot more.
    wanted = math.ceil(factor * top_k * length / num_experts - ROUNDING)
    return max(1, min(length, wanted))


def route(logits_GTE: Tensor, top_k: int, capacity: int) -> Routing:
    """Return where tokens go, given their gate's logits.

    Args:
        logits_GTE: (G, T, E); the weights of choices keep their graph.
        top_k: Experts of a token, at most E.
        capacity: C, slots of an expert for a sequence.
    """
    num_sequences, length, num_experts = logits_GTE.shape
    weights_GTk, experts_GTk = logits_GTE.softmax(dim=-1).topk(top_k, dim=-1)
    # All first choices before all second ones: a second choice never takes a first one's slot.
    queue_GQ = experts_GTk.transpose(1, 2).reshape(num_sequences, -1)
    chosen_GQE = torch.nn.functional.one_hot(queue_GQ, num_experts)
    # Inclusive sum less the own one: how many before it in the queue chose the same expert, which is its slot.
    before_GQE = chosen_GQE.cumsum(dim=1) - chosen_GQE
    places_GQ = before_GQE.gather(2, queue_GQ[..., None])[..., 0]
    places_GTk = places_GQ.view(num_sequences, top_k, length).transpose(1, 2).contiguous()
    return Routing(
        experts_GTk=experts_GTk,
        weights_GTk=weights_GTk,
        places_GTk=places_GTk,
        # Weights are not renormalised: a dropped choice adds nothing, the other one counts as before.
        kept_GTk=places_GTk < capacity,
        num_experts=num_experts,
        capacity=capacity,
    )


def forced(logits_GTE: Tensor, chosen_GT: Tensor) -> Routing:
    """Return a routing in which every token has the expert that a trace gives it, and none is dropped.

    Args:
        logits_GTE: Of the gate, (G, T, E).
        chosen_GT: Experts, (G, T), int64.
    """
    experts_GT1 = chosen_GT[..., None]
    return Routing(
        experts_GTk=experts_GT1,
        weights_GTk=logits_GTE.softmax(dim=-1).gather(2, experts_GT1),
        # Slots and capacity have no meaning here: experts take all rows that a trace sends them.
        places_GTk=torch.zeros_like(experts_GT1),
        kept_GTk=torch.ones_like(experts_GT1, dtype=torch.bool),
        num_experts=logits_GTE.shape[-1],
        capacity=0,
    )


def closest(logits_GTE: Tensor, top_k: int) -> float:
    """Return the least distance of two logits whose order decides where a token goes; infinite with one expert."""
    # One more than top_k: between the last one chosen and the first one left out lies a decision, too.
    best = logits_GTE.detach().topk(min(top_k + 1, logits_GTE.shape[-1]), dim=-1).values
    gaps = best[..., :-1] - best[..., 1:]
    return float(gaps.min()) if gaps.numel() else math.inf
