"""The replica of ranks that share experts at inference: symbol by symbol, forward alone.

A step reads a batch of sequences position by position, as generation does with its own symbols: at each position every
rank is told the symbols, and the technique must deliver the logits of every sequence on some rank. Which expert a token
goes to in a layer is the trace's; the gate says what it counts. Every rank has all weights but the experts', which are
dealt out by the technique's placement; the keys and values that ``attend`` keeps are those that were given to it.

Shape suffixes: B sequences, m those that are on this rank, D width, H heads (of queries; G of keys and values), K width
of a head, T positions, V symbols.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from paceline.base.counting import number_of
from paceline.families.training.api.expert.layer import ExpertLayer, expert_layers
from paceline.families.training.api.expert.placement import Placement
from paceline.families.training.api.model import Transformer, rotate
from paceline.families.training.api.replica import Comm, Replica, Share, Task, UnsupportedError
from paceline.families.training.api.router import Router

ITEM = 4
"""Bytes of an element."""


class ExpertDecoder(Replica):
    """Reads sequences with a share of the experts.

    Args:
        task: The rank's task.
        comm: The communicator.
        placement: Rank of every expert, for every layer; by equal numbers.
        cached: Sequences whose keys and values this rank keeps.

    Raises:
        UnsupportedError: Experts cannot be dealt out evenly.
    """

    def __init__(self, task: Task, comm: Comm, placement: Placement, cached: Sequence[int]) -> None:
        assert isinstance(task.model, Transformer)
        layers = expert_layers(task.model)
        check_deal(layers[0].num_experts, task.world_size)
        self.layers, self.placement = layers, placement
        self.rank_LE = torch.tensor(placement, device=task.device)
        # Before caches are made: the peak is then one rank's experts and caches, and not all experts and caches.
        self._free(task, layers)
        super().__init__(task, comm)
        self.num_sequences = task.tokens // task.context
        self.home = torch.arange(task.rank, self.num_sequences, task.world_size, device=task.device)
        """Sequences that begin on this rank."""
        size = layers[0].size
        shape = (len(layers), len(cached), size.num_kv_heads, task.context, size.head_width)
        self.keys_LBGTK = self.register_state("keys", torch.zeros(shape, device=task.device))
        self.values_LBGTK = self.register_state("values", torch.zeros(shape, device=task.device))
        self.cache_row_B = torch.full((self.num_sequences,), -1, device=task.device)
        # Sequences outside the cache keep row −1, which a technique that is right never reads.
        self.cache_row_B[list(cached)] = torch.arange(len(cached), device=task.device)
        self.passes = self.register_state("passes", torch.zeros((), dtype=torch.int64))
        self.router: Router | None = None
        """The run's routes, which the harness gives after all has its place."""
        self.chosen_BTL = torch.empty(0)
        self.logits_BTV = torch.empty(0)
        """What was delivered in the last step; NaN where it was not on this rank."""
        self.times_BT = torch.empty(0)
        """How often it was delivered."""

    @abstractmethod
    def decode(self, position: int, symbols_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sequences that ended up on this rank, (m,), and their logits, (m, V).

        Args:
            position: Of the symbols.
            symbols_B: Those of all sequences.
        """

    # The parts of a step

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Read the batch; return a loss whose mean over ranks is that of all positions."""
        task = self.task
        vocabulary = task.model.get_parameter("embedding.weight").shape[0]
        # NaN and a count, so that a token that no rank delivered, or two ranks did, cannot pass for a right one.
        self.logits_BTV = torch.full((self.num_sequences, task.context, vocabulary), torch.nan).to(
            task.device
        )
        self.times_BT = torch.zeros(self.num_sequences, task.context, device=task.device)
        assert self.router is not None
        self.chosen_BTL = self.router.chosen(int(self.passes)).to(task.device)
        self.passes += 1
        total = torch.zeros((), device=task.device)
        with torch.no_grad():
            for position in range(task.context):
                sequences_m, logits_mV = self.decode(position, sequences_BS[:, position])
                self.logits_BTV[sequences_m, position] = logits_mV
                self.times_BT[sequences_m, position] += 1
                targets_m = sequences_BS[sequences_m, position + 1]
                # A sum, for ranks deliver different numbers of tokens; a mean of
                # ranks' means would weigh them unequally.
                total += functional.cross_entropy(logits_mV, targets_m, reduction="sum")
        # The mean over ranks of this is the sum of all ranks over all tokens.
        return total * (task.world_size / task.tokens)

    def update(self, step: int) -> None:
        """Leave the weights as they are."""

    def shares(self) -> list[Share]:
        """Return this rank's experts."""
        return [(number, 0, p.detach().reshape(-1)) for number, p in self._own.items()]

    # What techniques build on

    def embed(self, symbols_m: Tensor) -> Tensor:
        """Return the stream of some tokens before the first layer, (m, D)."""
        return functional.embedding(symbols_m, self.model.get_parameter("embedding.weight"))

    def attend(
        self, layer: int, position: int, sequences_m: Tensor, x_mD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the stream after attention, and the keys and values that were kept for the sequences, (m, G, K)."""
        module, width = self.layers[layer], x_mD.shape[1]
        size = module.size
        counts = [size.heads, size.num_kv_heads, size.num_kv_heads]
        qkv = module.qkv(module.attention_norm(x_mD)).view(len(x_mD), sum(counts), size.head_width)
        q_mHK, k_mGK, v_mGK = torch.split(qkv, counts, dim=1)
        cos, sin = (self.model.get_buffer(name)[position] for name in ("cos_TK", "sin_TK"))
        # Keys are kept rotated: a key's angle is its own position's, whoever reads it later.
        q_mHK, k_mGK = rotate(q_mHK, cos, sin), rotate(k_mGK, cos, sin)
        # Before attention: a token sees its own key, which must be in the cache by then.
        self.remember(layer, position, sequences_m, k_mGK, v_mGK)
        rows_m = self.cache_row_B[sequences_m]
        # No mask: the slice ends at this position, so nothing later is there to be seen.
        k_mGTK = self.keys_LBGTK[layer, rows_m, :, : position + 1]
        v_mGTK = self.values_LBGTK[layer, rows_m, :, : position + 1]
        seen_mH1K = functional.scaled_dot_product_attention(
            q_mHK[:, :, None], k_mGTK, v_mGTK, enable_gqa=size.heads != size.num_kv_heads
        )
        return x_mD + module.mix(seen_mH1K.reshape(len(x_mD), width)), k_mGK, v_mGK

    def remember(self, layer: int, position: int, sequences_m: Tensor, k_mGK: Tensor, v_mGK: Tensor) -> None:
        """Keep keys and values of a position of some sequences."""
        rows_m = self.cache_row_B[sequences_m]
        self.keys_LBGTK[layer, rows_m, :, position] = k_mGK
        self.values_LBGTK[layer, rows_m, :, position] = v_mGK

    def normalise(self, layer: int, x_mD: Tensor) -> Tensor:
        """Return what experts read of the stream."""
        found: Tensor = self.layers[layer].mlp_norm(x_mD)
        return found

    def route(self, layer: int, position: int, sequences_m: Tensor, h_mD: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expert of every token, (m,), and what it counts, (m,)."""
        experts_m = self.chosen_BTL[sequences_m, position, layer]
        # The trace says where a token goes; the gate's softmax still says what its expert counts, as in training.
        weights_mE = self.layers[layer].gate(h_mD).softmax(dim=-1)
        return experts_m, weights_mE.gather(1, experts_m[:, None])[:, 0]

    def work(self, layer: int, h_mD: Tensor, experts_m: Tensor) -> Tensor:
        """Return what this rank's experts make of rows, (m, D)."""
        made_mD = torch.empty_like(h_mD)
        for expert in sorted(set(experts_m.tolist())):
            mine = (experts_m == expert).nonzero()[:, 0]
            made_mD[mine] = self.layers[layer].experts[expert](h_mD[mine])
        return made_mD

    def predict(self, x_mD: Tensor) -> Tensor:
        """Return the logits, (m, V)."""
        found_mD = self.model.get_submodule("norm")(x_mD)
        return functional.linear(found_mD, self.model.get_parameter("embedding.weight"))

    def _free(self, task: Task, layers: list[ExpertLayer]) -> None:
        """Keep the experts that the placement gives this rank, and free the memory of the others."""
        numbers = {id(p): number for number, p in enumerate(task.model.parameters())}
        self._own = {}
        others = set(numbers.values())
        for layer, ranks in zip(layers, self.placement, strict=True):
            for expert, rank in zip(layer.experts, ranks, strict=True):
                for parameter in expert.parameters():
                    others.discard(numbers[id(parameter)])
                    if rank == task.rank:
                        self._own[numbers[id(parameter)]] = parameter
                    else:
                        # Freed and not deleted: the module keeps its shapes, and shares()
                        # is checked against storages of size zero.
                        parameter.untyped_storage().resize_(0)
        self.common = tuple(sorted(others))


def check_deal(experts: int, ranks: int) -> None:
    """Make sure that every rank gets as many experts.

    Raises:
        UnsupportedError: It would not.
    """
    if experts % ranks:
        raise UnsupportedError(
            f"{number_of(experts, 'expert')} cannot be dealt out evenly to {number_of(ranks, 'rank')}"
        )
