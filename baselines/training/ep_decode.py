"""Expert parallelism at inference, the plain way: a token goes to its expert's rank and back in every layer.

Rajbhandari et al., "DeepSpeed-MoE: Advancing Mixture-of-Experts Inference and Training to Power Next-Generation AI
Scale" (ICML 2022), section 5: the baseline of ExFlow.

Algorithm (n ranks, E/n experts of every layer on each in their order; a sequence belongs to one rank):
1. Each rank attends for its own sequences, whose keys and values it alone keeps.
2. Tokens go to the ranks of their experts (first all-to-all), and what was made of them comes back (second one).

Cost of a layer and position: 4·d bytes for every token whose expert lies elsewhere, and as many back by the expert's
rank, in two messages for each pair of ranks with such tokens, beside counts of 8 bytes in n − 1 messages. With even
routing 2·(n − 1)/n · B/n rows a rank. Memory: keys and values of B/n sequences; experts' weights over n.
Differences: rows are sent as they are, not padded to a capacity; nothing is dropped. One expert a token.
Limits: as many experts on every rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.decoder import ITEM, ExpertDecoder
from paceline.families.training.api.expert.layer import expert_layers
from paceline.families.training.api.expert.placement import Placement, contiguous
from paceline.families.training.api.expert.routes_cost import across, cost_of, home_of, moves, ranks_of
from paceline.families.training.api.expert.rows import COUNT_BYTES, RowExchange
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="ep-decode",
    family="training",
    implements=("expert_inference",),
    summary="tokens go to their experts and back: two all-to-alls a layer, experts in their order",
    properties={"exact": True, "replicas": "identical"},
)
class ExpertDecode(ExpertDecoder):
    """Keeps sequences where they belong; m are this rank's, N the rows that came to it."""

    def __init__(self, task: Task, comm: Comm) -> None:
        own = range(task.rank, task.tokens // task.context, task.world_size)
        super().__init__(task, comm, in_order(task), own)

    def decode(self, position: int, symbols_B: Tensor) -> tuple[Tensor, Tensor]:
        """Take this rank's sequences through all layers."""
        x_mD = self.embed(symbols_B[self.home])
        for layer in range(len(self.layers)):
            x_mD, _, _ = self.attend(layer, position, self.home, x_mD)
            h_mD = self.normalise(layer, x_mD)
            experts_m, weights_m = self.route(layer, position, self.home, h_mD)
            exchange = RowExchange(self.comm, self.rank_LE[layer, experts_m])
            # The expert's number rides along as a float32, exact up to 2²⁴: one message instead of two.
            there = exchange.there(torch.cat([h_mD, experts_m[:, None].to(h_mD.dtype)], dim=1))
            made_ND = self.work(layer, there[:, :-1].contiguous(), there[:, -1].long())
            x_mD = x_mD + weights_m[:, None] * exchange.back(made_ND)
        return self.home, self.predict(x_mD)


def in_order(task: Task) -> Placement:
    """Return the placement of experts in their order."""
    layers = expert_layers(task.model)
    return contiguous(len(layers), layers[0].num_experts, task.world_size)


def cost(task: Task) -> Cost:
    """Return the header's formula on the routes of the run; rows go out with their expert's number."""
    n, width = task.world_size, task.model.get_parameter("embedding.weight").shape[1]
    ranks_PBTL = ranks_of(task, in_order(task))
    moves_PTLnN = moves(home_of(ranks_PBTL, n), ranks_PBTL, n)
    out_bytes, out_messages = across(moves_PTLnN, ITEM * (width + 1))
    back_bytes, back_messages = across(moves_PTLnN.transpose(-1, -2), ITEM * width)
    # Counts go to every other rank even where no row follows: the receiver cannot know how much to expect.
    counts = task.context * ranks_PBTL.shape[-1] * (n - 1)
    return cost_of(out_bytes + back_bytes + COUNT_BYTES * counts, out_messages + back_messages + counts)
