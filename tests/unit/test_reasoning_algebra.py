"""What papers say of trees of tokens, on the embedded reasoner: one flattened pass equals the forked requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.reasoning.core.language import Draw, Piece
from paceline.families.reasoning.core.problems.embedded import CONCLUSION, SEGMENT_END, branches, draw, encode
from paceline.families.reasoning.core.reasoner import Reasoner, weights_path
from paceline.families.reasoning.core.reasoner.network import NORM_EPSILON, Network, rotary_tables, rotated
from paceline.families.reasoning.core.reasoner.weights import read

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


def finish(model: Reasoner, handles: Sequence[int]) -> dict[int, Piece]:
    found: dict[int, Piece] = {}
    while len(found) < len(handles):
        found |= {piece.trace: piece for piece in model.poll()}
    return found


@pytest.mark.parametrize("level", [4, 7, 10])
def test_a_merge_equals_one_masked_pass_and_reads_no_token_again(
    network: Network, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, threads = tree(level)
    model = Reasoner(network, "weak")
    draw_of = [Draw(key=(level, i), temperature=0.8) for i in range(len(threads) + 1)]
    root = model.begin(prefix, draw_of[-1])
    forks = [model.fork(root, thread[:2], draw_of[i]) for i, thread in enumerate(threads)]
    for fork in forks:
        model.advance(fork, 60, {SEGMENT_END})
    written = [
        [*thread[:2], *finish_one.tokens]
        for thread, (_, finish_one) in zip(threads, sorted(finish(model, forks).items()), strict=True)
    ]
    read_before = tokens_read(model, monkeypatch)
    merged = model.merge(root, forks, CONCLUSION, draw_of[-1])
    # what nothing had followed yet is read now, for the first time: each fork's last token
    assert sum(read_before) == len(forks)
    model.advance(merged, 60)
    piece = finish(model, [merged])[merged]

    tail = [*CONCLUSION, *piece.tokens]
    tokens, visible, positions = flattened(prefix, written)
    size, longest = tokens.shape[1], max(map(len, written))
    all_tokens = torch.cat((tokens, torch.tensor([tail])), 1)
    sees_TT = torch.ones(size + len(tail), size + len(tail), dtype=torch.bool).tril()
    sees_TT[:size, :size] = visible[0]
    places = torch.cat((positions, len(prefix) + longest + torch.arange(len(tail))))
    with torch.inference_mode():
        logprobs = network(all_tokens, sees_TT[None], places)[0].log_softmax(-1)[size:-1]
        in_a_row = network(all_tokens)[0].log_softmax(-1)[size:-1]
    expected = logprobs.gather(1, torch.tensor(piece.tokens)[:, None])[:, 0]
    assert (expected - torch.tensor(piece.logprobs, dtype=torch.float64)).abs().max() <= TOLERANCE
    # known wrong: parts that follow each other are another function
    wrong = in_a_row.gather(1, torch.tensor(piece.tokens)[:, None])[:, 0]
    assert (wrong - torch.tensor(piece.logprobs, dtype=torch.float64)).abs().max() > 1e-3


def tokens_read(model: Reasoner, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that will hold how many tokens each reading reads."""
    counts: list[int] = []
    original = model._decoder.read

    def read(slots: object, starts: object, chunks: Sequence[Sequence[int]], shifts: object) -> None:
        counts.extend(len(chunk) for chunk in chunks)
        original(slots, starts, chunks, shifts)  # type: ignore[arg-type]

    monkeypatch.setattr(model._decoder, "read", read)
    return counts


def test_a_merge_of_what_are_no_forks_is_refused(network: Network) -> None:
    model = Reasoner(network, "weak")
    draw_of = Draw(key=(1,), temperature=0.8)
    root = model.begin(tree(4)[0], draw_of)
    fork, other = model.fork(root, encode("T1"), draw_of), model.begin(encode("Q T1 3 + 4 ?"), draw_of)
    with pytest.raises(ValueError, match=r"not all of .* are forks"):
        model.merge(root, (fork, other), CONCLUSION, draw_of)
    with pytest.raises(ValueError, match="needs a token behind it"):
        model.merge(root, (fork,), (), draw_of)
    merged = model.merge(root, (fork, model.fork(root, encode("T2"), draw_of)), CONCLUSION, draw_of)
    with pytest.raises(ValueError, match="merged itself"):
        model.merge(merged, (fork,), CONCLUSION, draw_of)
    model.advance(fork, 3)
    with pytest.raises(ValueError, match="under way"):
        model.merge(root, (fork,), CONCLUSION, draw_of)


def naive_sharing(
    network: Network, prefix: Sequence[int], blocks: Sequence[Sequence[int]], *, turn: int = 0
) -> list[list[Tensor]]:
    """Return the log-probabilities of what follows each token of traces that see each other, (V,) each.

    Every key is kept as it was before its rotation and rotated anew for each query, at the place that it has in the
    sequence which that trace sees: the beginning, the other traces, its own tokens.

    Args:
        network: The weights.
        prefix: The common beginning.
        blocks: Tokens of each trace, all of which decode one in a step.
        turn: Added to every key's place; known wrong unless 0.
    """
    shape = network.shape
    cosines, sines = rotary_tables(shape, torch.float64)
    kept: list[list[list[tuple[Tensor, Tensor]]]] = [
        [[] for _ in range(len(blocks) + 1)] for _ in network.layers
    ]

    def read(token: int, own: int, others: Sequence[int], seen: Sequence[int]) -> Tensor:
        x_D = network.embedding.weight[token]
        for layer, of_layer in zip(network.layers, kept, strict=True):
            normal_D = functional.rms_norm(x_D, (shape.width,), layer.attention_gain, NORM_EPSILON)
            q_HK, k_HK, v_HK = layer.qkv(normal_D).view(3, shape.heads, shape.head_width)
            row = [of_layer[0][: seen[0]], *(of_layer[o][: seen[o]] for o in others)] if own else []
            visible = [*(pair for block in row for pair in block), *of_layer[own], (k_HK, v_HK)]
            of_layer[own].append((k_HK, v_HK))
            place = len(visible) - 1
            places = slice(turn, turn + len(visible))
            turns = cosines[places, None], sines[places, None]
            keys = rotated(torch.stack([k for k, _ in visible]), *turns)
            query = rotated(q_HK, cosines[place], sines[place])
            weights = (torch.einsum("hk,lhk->hl", query, keys) * shape.head_width**-0.5).softmax(-1)
            seen_HK = torch.einsum("hl,lhk->hk", weights, torch.stack([v for _, v in visible]))
            x_D = x_D + layer.mix(seen_HK.flatten())
            normal_D = functional.rms_norm(x_D, (shape.width,), layer.perceptron_gain, NORM_EPSILON)
            x_D = x_D + layer.down(functional.gelu(layer.up(normal_D)))
        x_D = functional.rms_norm(x_D, (shape.width,), network.final_gain, NORM_EPSILON)
        return (x_D @ network.embedding.weight.T).log_softmax(-1)

    for token in prefix:
        read(token, 0, (), ())
    found: list[list[Tensor]] = [[] for _ in blocks]
    for step in range(max(map(len, blocks))):
        seen = [len(of_block) for of_block in kept[0]]
        for own, block in enumerate(blocks, 1):
            if step < len(block):
                others = [o for o in range(1, len(blocks) + 1) if o != own]
                found[own - 1].append(read(block[step], own, others, seen))
    return found


@pytest.mark.parametrize("level", [4, 10])
@torch.inference_mode()
def test_turned_queries_equal_keys_that_are_rotated_anew(network: Network, level: int) -> None:
    prefix, threads = tree(level)
    model = Reasoner(network, "weak")
    draws = [Draw(key=(level, i), temperature=0.8) for i in range(len(threads))]
    root = model.begin(prefix, draws[0])
    openings = [thread[0] for thread in threads]
    workers = model.share(root, openings, draws)
    for worker in workers:
        model.advance(worker, 15)
    pieces = [piece for _, piece in sorted(finish(model, workers).items())]
    blocks = [[opening, *piece.tokens] for opening, piece in zip(openings, pieces, strict=True)]
    expected = naive_sharing(network, prefix, blocks)
    wrong = naive_sharing(network, prefix, blocks, turn=1)
    differences = [
        [abs(float(at[i][token]) - piece.logprobs[i]) for i, token in enumerate(piece.tokens)]
        for which in (expected, wrong)
        for at, piece in zip(which, pieces, strict=True)
    ]
    count = len(pieces)
    assert max(map(max, differences[:count])) <= TOLERANCE
    assert max(map(max, differences[count:])) > 1e-3


def test_one_worker_alone_is_a_plain_trace_and_sharing_changes_what_two_write(network: Network) -> None:
    prefix, threads = tree(10)
    model = Reasoner(network, "weak")
    draws = [Draw(key=(3, i), temperature=0.8) for i in range(2)]
    root = model.begin(prefix, draws[0])
    plain = model.fork(root, threads[0][:1], draws[0])
    (alone,) = model.share(root, [threads[0][0]], draws[:1])
    together = model.share(root, [thread[0] for thread in threads[:2]], draws)
    for handle in (plain, alone, *together):
        model.advance(handle, 200)
    found = finish(model, [plain, alone, *together])
    assert found[alone].tokens == found[plain].tokens
    assert found[together[0]].tokens != found[plain].tokens
    slots = model.num_slots
    for handle in (root, plain, alone, *together):
        model.drop(handle)
    # everything has been given back: as many can be opened again
    again = [model.begin(prefix, draws[0]) for _ in range(slots)]
    assert model.num_slots == slots
    assert len(again) == slots


def test_what_shares_a_cache_cannot_be_copied(network: Network) -> None:
    model = Reasoner(network, "weak")
    draw_of = Draw(key=(1,), temperature=0.8)
    root = model.begin(tree(4)[0], draw_of)
    first, second = model.share(root, encode("T1 T2"), [draw_of, draw_of])
    with pytest.raises(ValueError, match="shares its cache"):
        model.fork(first, encode("3"), draw_of)
    with pytest.raises(ValueError, match="shares its cache"):
        model.share(second, encode("T1"), [draw_of])
    with pytest.raises(ValueError, match="2 openings and 1 draws"):
        model.share(root, encode("T1 T2"), [draw_of])
