"""Which rank has which experts of every layer: in their order, or so that tokens seldom change ranks.

The program: of all placements with as many experts of every layer on each rank, find one that keeps most tokens on
their rank from one layer's expert to the next: max Σ_l Σ_ij w_l(i, j) · [rank of i in layer l = rank of j in l + 1].
The layers form a chain, so it is solved exactly by dynamic programming: a state is a way to put a layer's experts into
unnamed groups, and from one state to the next groups are matched one to one as well as they can be. States are
E! / ((E/n)!^n · n!): 1 for 8 experts on 8 ranks, 105 on 4, 35 on 2, and 6435 for 16 on 2 (minutes for its pairs).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

Placement = list[list[int]]
"""Rank of every expert, for every layer."""
MOST_COMPARISONS = 100_000_000
"""Sums that are compared for one pair of layers: seconds."""
CALL_COMPARISONS = 10_000
"""Comparisons that take as long as calling for some."""
CHUNK_ELEMENTS = 20_000_000


def contiguous(layers: int, experts: int, ranks: int) -> Placement:
    """Return the placement in the experts' order, the same in every layer."""
    return [[expert * ranks // experts for expert in range(experts)] for _ in range(layers)]


def transitions(routes_NL: Tensor, experts: int) -> Tensor:
    """Count for each pair of neighbouring layers the tokens that went from expert i to expert j, (L − 1, E, E)."""
    pairs_LN = (routes_NL[:, :-1] * experts + routes_NL[:, 1:]).T
    counts = [torch.bincount(pairs_N, minlength=experts * experts) for pairs_N in pairs_LN]
    return torch.stack(counts).view(-1, experts, experts) if counts else torch.zeros(0, experts, experts)


def stays(placement: Placement, counts_LEE: Tensor) -> int:
    """Return what the program maximises."""
    ranks_LE = torch.tensor(placement)
    same_LEE = ranks_LE[:-1, :, None] == ranks_LE[1:, None, :]
    return int((counts_LEE * same_LEE).sum())


def num_comparisons(experts: int, ranks: int) -> int:
    """Return the number of sums that are compared for one pair of layers, and what their calls cost beside."""
    # States² pairs with ranks·2^ranks sums each; calls are added, since small tables are bound by them.
    return (_num_states(experts, ranks) ** 2 + CALL_COMPARISONS) * (ranks << ranks)


def solve(counts_LEE: Tensor, ranks: int) -> Placement:
    """Return a placement that keeps most tokens on their rank: a best one, always the same.

    Args:
        counts_LEE: Tokens by their experts in neighbouring layers.
        ranks: n; it divides E.
    """
    experts = counts_LEE.shape[-1]
    states = list(_groupings(tuple(range(experts)), experts // ranks))
    # float64: counts of tokens are exact up to 2⁵³, so ties are ties and argmax is the same on every rank.
    member_UnE = torch.zeros(len(states), ranks, experts, dtype=torch.float64)
    for state, groups in enumerate(states):
        for group, members in enumerate(groups):
            member_UnE[state, group, list(members)] = 1
    value_U = torch.zeros(len(states), dtype=torch.float64)
    back: list[Tensor] = []
    for counts_EE in counts_LEE.double():
        value_U, before_U = _best_before(value_U, member_UnE, counts_EE)
        back.append(before_U)
    # All ranks solve this from one sample, and argmax takes the first of equals: no placement is sent.
    path = [int(value_U.argmax())]
    for before_U in reversed(back):
        path.append(int(before_U[path[-1]]))
    path.reverse()
    # Matchings are found anew for the best path alone: kept for all pairs of states they would fill memory.
    orders = [
        _order(_kept(member_UnE[[here]], counts_EE, member_UnE[[there]])[0, 0].tolist())
        for here, there, counts_EE in zip(path[:-1], path[1:], counts_LEE.double(), strict=True)
    ]
    return _named([states[state] for state in path], orders, experts)


def _kept(before_UnE: Tensor, counts_EE: Tensor, after_unE: Tensor) -> Tensor:
    """Count the tokens that go from a group of one state to a group of another, (U, u, n, n)."""
    # Group by counts first: the product over E is then small, and one call serves all pairs of states.
    return torch.einsum("are,bse->abrs", before_UnE @ counts_EE, after_unE)


def _best_before(value_U: Tensor, member_UnE: Tensor, counts_EE: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each state of the next layer the best value, and from which state it comes."""
    num_states, ranks, _ = member_UnE.shape
    values, states = [], []
    # In parts of the next layer's states, so that the matching's tables stay below CHUNK_ELEMENTS.
    chunk = max(1, CHUNK_ELEMENTS // (num_states * 2**ranks))
    for part_unE in torch.split(member_UnE, chunk):
        best_Uu = _best_matching(_kept(member_UnE, counts_EE, part_unE))
        value_u, state_u = (best_Uu + value_U[:, None]).max(dim=0)
        values.append(value_u)
        states.append(state_u)
    return torch.cat(values), torch.cat(states)


def _best_matching(kept_Uunn: Tensor) -> Tensor:
    """Return the most tokens that stay when groups are matched one to one, over sets of the groups that are taken."""
    ranks = kept_Uunn.shape[-1]
    best = [torch.zeros_like(kept_Uunn[..., 0, 0])]
    for taken in range(1, 1 << ranks):
        # Groups are matched in order: the set that is taken tells which one is next. 2^n states, not n!.
        row = taken.bit_count() - 1
        ways = [best[taken ^ 1 << s] + kept_Uunn[..., row, s] for s in range(ranks) if taken >> s & 1]
        best.append(torch.stack(ways).amax(dim=0))
    return best[-1]


def _order(kept_nn: list[list[float]]) -> list[int]:
    """Return with which group of the next layer each group is matched."""
    ranks = len(kept_nn)
    best: list[tuple[float, int]] = [(0.0, -1)]
    for taken in range(1, 1 << ranks):
        row = taken.bit_count() - 1
        ways = [(best[taken ^ 1 << s][0] + kept_nn[row][s], s) for s in range(ranks) if taken >> s & 1]
        # max over (value, group): among equal values always the last group, so the order is the same on every rank.
        best.append(max(ways))
    order, taken = [0] * ranks, (1 << ranks) - 1
    for row in reversed(range(ranks)):
        order[row] = best[taken][1]
        taken ^= 1 << order[row]
    return order


def _named(path: list[tuple[tuple[int, ...], ...]], orders: list[list[int]], experts: int) -> Placement:
    """Give the groups of every layer the ranks of those that they were matched with."""
    rank_of = list(range(len(path[0])))
    found: Placement = []
    for layer, groups in enumerate(path):
        if layer:
            # Names travel along the chain: a group has the rank of the group that it was matched with.
            before, rank_of = rank_of, [0] * len(rank_of)
            for group, matched in enumerate(orders[layer - 1]):
                rank_of[matched] = before[group]
        row = [0] * experts
        for group, members in enumerate(groups):
            for expert in members:
                row[expert] = rank_of[group]
        found.append(row)
    return found


def _num_states(experts: int, ranks: int) -> int:
    deal = experts // ranks
    named: int = math.factorial(experts) // math.factorial(deal) ** ranks
    # Divided by n!: which rank a group gets does not change how many tokens stay.
    return named // math.factorial(ranks)


def _groupings(left: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every way to put numbers into unnamed groups of one size."""
    if not left:
        yield ()
        return
    # The least number left opens the next group: each set of unnamed groups is found once.
    first, *rest = left
    for others in combinations(rest, size - 1):
        remaining = tuple(number for number in rest if number not in others)
        for groups in _groupings(remaining, size):
            yield ((first, *others), *groups)
