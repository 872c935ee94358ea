"""Expert parallelism with two all-to-alls: GShard's dispatch by dense products, experts dealt out to ranks.

Lepikhin et al., "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding" (ICLR 2021), section
2.2, algorithms 1 and 2. Fairseq's mixtures of experts do the same.

Algorithm (n ranks, E/n experts on each; k experts a token, C slots of an expert for a sequence):
1. A mask (T, E, C) of zeros and ones says which token takes which slot; its product with the tokens fills the slots.
2. An all-to-all brings every slot to its expert's rank; the experts work on the slots of all ranks.
3. A second one brings them back; a mask of the gate's weights, the same otherwise, adds them up for every token.
4. Backward is the same in reverse: two more all-to-alls. Gradients of everything else are averaged around a ring.

Cost of a layer (G sequences a rank): 4·(n − 1)/n · E·G·C rows of 4·d bytes in 4·(n − 1) messages, whatever the routing:
slots that nobody takes travel, too. The masks take 2·T·E·C·d operations a sequence, of which all but k·T·d add zeros.
Memory: masks of G·T·E·C elements in every layer until its backward; experts' weights and state over n.
Differences: the paper's loss that evens out experts and its random second choice are left out, here and in the oracle.
Limits: as many experts on every rank.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from paceline import technique
from paceline.families.training.api.expert.exchange import all_to_all
from paceline.families.training.api.expert.replica import ExpertReplica, Shape, expert_cost, perceptrons
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="ep-alltoall",
    family="training",
    implements=("expert_parallel",),
    summary="dense dispatch and two all-to-alls a layer: GShard's expert parallelism",
    properties={"exact": True, "replicas": "identical"},
)
class ExpertAllToAll(ExpertReplica):
    """Masks and all-to-alls; n ranks, e experts of one, N rows of all ranks for one expert."""

    def encode(self, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Fill slots by a product with a mask."""
        # Dispatch is 0 or 1 and has no gradient; the gate learns through decode's weights alone.
        with torch.no_grad():
            mask_GTEC = mask(routing, torch.ones_like(routing.weights_GTk))
        return torch.einsum("gtec,gtd->egcd", mask_GTEC, h_GTD)

    def run_experts(self, layer: int, slots_EGCD: Tensor) -> Tensor:
        """Exchange, work, and exchange back."""
        size, own = self.comm.world_size, self.num_own
        there_neND = all_to_all(self.comm, slots_EGCD.reshape(size, own, -1, slots_EGCD.shape[-1]))
        # Expert first, so that each expert multiplies the rows of all ranks in one batched product.
        rows_eND = there_neND.transpose(0, 1).reshape(own, -1, slots_EGCD.shape[-1])
        made_eND = perceptrons(rows_eND, self.up_efD[layer], self.down_efD[layer])
        back_neND = made_eND.view(own, size, -1, slots_EGCD.shape[-1]).transpose(0, 1)
        return all_to_all(self.comm, back_neND).view(slots_EGCD.shape)

    def decode(self, slots_EGCD: Tensor, routing: Routing) -> Tensor:
        """Add slots up by a product with the mask of weights."""
        return torch.einsum("gtec,egcd->gtd", mask(routing, routing.weights_GTk), slots_EGCD)


def mask(routing: Routing, values_GTk: Tensor) -> Tensor:
    """Return each choice's value where its slot is and zero elsewhere, (G, T, E, C)."""
    kept_GTk = values_GTk * routing.kept_GTk
    # Dropped choices have places beyond C, which one_hot refuses; their value is zero already, so any slot will do.
    places_GTk = routing.places_GTk.clamp(max=routing.capacity - 1)
    expert_GTkE = functional.one_hot(routing.experts_GTk, routing.num_experts).to(values_GTk.dtype)
    place_GTkC = functional.one_hot(places_GTk, routing.capacity).to(values_GTk.dtype)
    return torch.einsum("gtk,gtke,gtkc->gtec", kept_GTk, expert_GTkE, place_GTkC)


def cost(task: Task) -> Cost:
    """Return the header's formula."""

    def of_layer(shape: Shape, step: int) -> tuple[int, int]:
        # Four all-to-alls: there and back, forward and backward; of each a rank keeps 1/n.
        return 4 * (shape.ranks - 1) * shape.buffer_bytes // shape.ranks, 4 * (shape.ranks - 1)

    return expert_cost(task, of_layer)
