"""ExFlow: tokens stay with their last expert, and experts lie where tokens go next.

Yao et al., "Exploiting Inter-Layer Expert Affinity for Accelerating Mixture-of-Experts Model Inference" (IPDPS 2024).

Algorithm (n ranks, E/n experts of every layer on each):
1. From a sample of routes count how often expert i of a layer is followed by expert j of the next, and place experts so
   that most tokens stay on their rank: an integer program over the layers' placements (``expert.placement``).
2. Every rank keeps the keys and values of all sequences, so that a token can attend wherever it is. It goes to its
   expert's rank with its stream (one all-to-all a layer) and stays there, through the next layer's attention.
3. After the last layer every rank sends the others the keys and values that it made: contexts are coherent again.

Cost of a layer and position: 4·(d + 3) bytes for every token whose next expert lies elsewhere, in one message for each
pair of ranks, beside counts; and once a position 4·(2·k + 1)·(n − 1) bytes for every token and layer that was here; k
is the width of all keys: d, or less where a head of keys serves several of queries. With k = d the second part is the
larger one: what saves an all-to-all of d costs 2·d to every other rank.
Memory: keys and values of all sequences on every rank.
Limits: one expert a token; sizes for which the program is solved in seconds: 8 experts on 2, 4 and 8 ranks, 12 on 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.decoder import ITEM, ExpertDecoder, check_deal
from paceline.families.training.api.expert.layer import expert_layers
from paceline.families.training.api.expert.placement import (
    MOST_COMPARISONS,
    Placement,
    contiguous,
    num_comparisons,
    solve,
    transitions,
)
from paceline.families.training.api.expert.routes_cost import across, cost_of, home_of, moves, ranks_of
from paceline.families.training.api.expert.rows import COUNT_BYTES, RowExchange, share_rows
from paceline.families.training.api.replica import Comm, Cost, Task, UnsupportedError


@technique(
    name="exflow",
    family="training",
    implements=("expert_inference",),
    summary="one all-to-all a layer; experts placed by what follows what",
    paper="exflow",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract's method by the ledger, not read for this card (arXiv:2401.08383)",
            "code": "github.com/YJHMITWEB/ExFlow: solve_affinity.py, README.md; the model itself is not there",
        },
        "deviations": (
            (
                "The paper counts the gathering of contexts once an iteration; equal outputs need the keys and "
                "values of every layer, which is what is sent here."
            ),
            (
                "The programme is solved exactly by dynamic programming along the layers; the authors use Gurobi "
                "with a time limit, halving the ranks again and again."
            ),
            "Crossings between ranks cost alike; the authors' measure counts one between nodes twice.",
            "Tokens begin a position on their sequence's rank.",
            "Affinity is counted from 20 000 tokens; the authors say that 5000 are enough, and add as many until the "
            "solution stays.",
        ),
        "constants": {
            "placement": {"here": "affinity", "authors": "affinity"},
        },
        "checked_by": (
            "tests/unit/test_expert_inference.py::test_an_integer_programming_solver_finds_no_better_one",
            "tests/unit/test_expert_inference.py::test_logits_and_bytes_are_those_of_one_process_and_of_the_formula",
        ),
    },
)
class ExFlow(ExpertDecoder):
    """Lets tokens stay; ``placement`` is ``affinity`` or ``contiguous``."""

    def __init__(self, task: Task, comm: Comm, *, placement: str = "affinity") -> None:
        super().__init__(task, comm, placed(task, placement), range(task.tokens // task.context))

    def decode(self, position: int, symbols_B: Tensor) -> tuple[Tensor, Tensor]:
        """Take tokens through all layers, from rank to rank; then make contexts coherent."""
        sequences_m = self.home
        x_mD = self.embed(symbols_B[sequences_m])
        made: list[Tensor] = []
        for layer in range(len(self.layers)):
            x_mD, k_mGK, v_mGK = self.attend(layer, position, sequences_m, x_mD)
            # Kept for the position's end: only later positions read these keys, and one message serves all layers.
            made.append(torch.cat([sequences_m[:, None], k_mGK.flatten(1), v_mGK.flatten(1)], dim=1))
            h_mD = self.normalise(layer, x_mD)
            experts_m, weights_m = self.route(layer, position, sequences_m, h_mD)
            exchange = RowExchange(self.comm, self.rank_LE[layer, experts_m])
            # As floats, exact up to 2²⁴: a token does not come back, so it carries what its next rank needs.
            notes_m3 = torch.stack([sequences_m, experts_m, weights_m], dim=1)
            arrived = exchange.there(torch.cat([x_mD, notes_m3], dim=1))
            x_mD, sequences_m, experts_m = arrived[:, :-3], arrived[:, -3].long(), arrived[:, -2].long()
            # Normalised again on arrival: what travels is the stream, which the next layer's attention needs.
            made_mD = self.work(layer, self.normalise(layer, x_mD), experts_m)
            x_mD = x_mD + arrived[:, -1:] * made_mD
        self._make_coherent(position, made)
        return sequences_m, self.predict(x_mD)

    def _make_coherent(self, position: int, made: list[Tensor]) -> None:
        """Give every rank the keys and values that others made of this position."""
        counts_L = torch.tensor([len(rows) for rows in made])
        for rank, (counts, rows) in enumerate(share_rows(self.comm, counts_L, torch.cat(made))):
            for layer, part in enumerate(torch.split(rows, counts) if rank != self.comm.rank else ()):
                # shape[2::2] of (L, B, G, T, K) is (G, K); the first column is the sequence's number.
                k_mGK, v_mGK = part[:, 1:].view(len(part), 2, *self.keys_LBGTK.shape[2::2]).unbind(1)
                self.remember(layer, position, part[:, 0].long(), k_mGK, v_mGK)


def placed(task: Task, placement: str) -> Placement:
    """Return where experts lie.

    Raises:
        UnsupportedError: There is no such placement, experts cannot be dealt out evenly, or the program is too large.
    """
    layers = expert_layers(task.model)
    experts, size = layers[0].num_experts, task.world_size
    check_deal(experts, size)
    if placement == "contiguous":
        return contiguous(len(layers), experts, size)
    if placement != "affinity":
        raise UnsupportedError(f"there is no placement '{placement}'")
    # Refused and not approximated: a heuristic placement would be another technique with other bytes.
    if num_comparisons(experts, size) > MOST_COMPARISONS:
        raise UnsupportedError(f"placing {experts} experts on {size} ranks is too large to be solved exactly")
    assert task.router is not None
    return solve(transitions(task.router.profile_NL, experts), size)


def cost(task: Task, *, placement: str) -> Cost:
    """Return the header's formula on the routes of the run."""
    n, width = task.world_size, task.model.get_parameter("embedding.weight").shape[1]
    ranks_PBTL = ranks_of(task, placed(task, placement))
    before_PBTL = home_of(ranks_PBTL, n).clone()
    # Before a layer a token is where the layer before it left it, and not at home, as it is for ep-decode.
    before_PBTL[..., 1:] = ranks_PBTL[..., :-1]
    moves_PTLnN = moves(before_PBTL, ranks_PBTL, n)
    row_bytes, row_messages = across(moves_PTLnN, ITEM * (width + 3))
    here_PTLn = moves_PTLnN.sum(dim=-1)
    size = expert_layers(task.model)[0].size
    keys = size.num_kv_heads * size.head_width
    kept_bytes = ITEM * (2 * keys + 1) * (n - 1) * here_PTLn.sum(dim=(1, 2))
    kept_messages = (n - 1) * (here_PTLn.sum(dim=2) > 0).sum(dim=1)
    layers, positions = ranks_PBTL.shape[-1], task.context
    counts_bytes = COUNT_BYTES * positions * (n - 1) * 2 * layers
    return cost_of(
        row_bytes + kept_bytes + counts_bytes,
        row_messages + kept_messages + positions * (n - 1) * (layers + 1),
    )
