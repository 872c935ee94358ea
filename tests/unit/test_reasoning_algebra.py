"""What papers say of trees of tokens, on the embedded reasoner: one flattened pass equals the forked requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from paceline.families.reasoning.problems import branches, draw, encode
from paceline.families.reasoning.reasoner import weights_path
from paceline.families.reasoning.reasoner.network import Network
from paceline.families.reasoning.reasoner.weights import read

TOLERANCE = 1e-9
"""Both sides compute in float64; the papers' bounds are 1e-4 (ThreadWeaver) and 1e-5 (Multiverse)."""


@pytest.fixture(scope="module")
def network() -> Network:
    return read(weights_path("weak"), torch.float64)[0]


def flattened(prefix: Sequence[int], threads: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, mask and positions of a tree: threads follow the prefix and do not see each other."""
    tokens = [*prefix, *(t for thread in threads for t in thread)]
    owner = [-1] * len(prefix) + [i for i, thread in enumerate(threads) for _ in thread]
    places = [*range(len(prefix)), *(len(prefix) + i for thread in threads for i in range(len(thread)))]
    owner_T = torch.tensor(owner)
    same_TT = (owner_T[None, :] == -1) | (owner_T[:, None] == owner_T[None, :])
    causal_TT = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    return torch.tensor([tokens]), (same_TT & causal_TT)[None], torch.tensor(places)


def tree(level: int) -> tuple[list[int], list[list[int]]]:
    """Return a problem's prompt and the beginning of each of its parts."""
    problem = next(p for p in draw(7, 40, levels=(level,)) if len(branches(p.prompt)) >= 2)
    threads = [
        [*encode(f"T{i + 1} {chain[0]}"), *(t for op, n in chain[1] for t in encode(f"{op} {n} = {n}"))]
        for i, chain in enumerate(branches(problem.prompt))
    ]
    return list(problem.prompt), threads


@torch.inference_mode()
def logits_of(network: Network, prefix: Sequence[int], threads: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return each thread's logits, from one flattened pass."""
    tokens, visible, positions = flattened(prefix, threads)
    found = network(tokens, visible, positions)[0, len(prefix) :]
    return list(found.split([len(t) for t in threads]))


@pytest.mark.parametrize("level", [4, 7, 10])
@torch.inference_mode()
def test_one_flattened_pass_equals_a_request_for_each_thread(network: Network, level: int) -> None:
    prefix, threads = tree(level)
    for thread, found in zip(threads, logits_of(network, prefix, threads), strict=True):
        alone = network(torch.tensor([[*prefix, *thread]]))[0, len(prefix) :]
        assert (found - alone).abs().max() <= TOLERANCE


def test_a_sibling_does_not_notice_what_happens_to_the_others(network: Network) -> None:
    prefix, threads = tree(10)
    before = logits_of(network, prefix, threads)
    edited = [threads[0], *([*thread[:-1], 3] for thread in threads[1:])]
    dropped = threads[:1]
    swapped = [*threads[1:], threads[0]]
    assert (logits_of(network, prefix, edited)[0] - before[0]).abs().max() <= TOLERANCE
    assert (logits_of(network, prefix, dropped)[0] - before[0]).abs().max() <= TOLERANCE
    assert (logits_of(network, prefix, swapped)[-1] - before[0]).abs().max() <= TOLERANCE


@torch.inference_mode()
def test_a_mask_or_positions_left_out_would_be_noticed(network: Network) -> None:
    prefix, threads = tree(10)
    tokens, visible, positions = flattened(prefix, threads)
    right = network(tokens, visible, positions)
    assert (network(tokens, None, positions) - right).abs().max() > 0.1
    assert (network(tokens, visible) - right).abs().max() > 0.1
