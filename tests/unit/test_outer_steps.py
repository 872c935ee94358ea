"""Outer steps of low-communication training on several ranks, against their papers' formulas written out in NumPy.

Ranks move as they are told instead of training. Each formula is also held against techniques that are wrong in one
respect, which must be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from paceline.baselines.training import noloco
from paceline.baselines.training.diloco import DiLoCo
from paceline.baselines.training.edit import Edit
from paceline.baselines.training.intellect_1 import Intellect1
from paceline.baselines.training.noloco import NoLoCo
from paceline.baselines.training.sparseloco import SparseLoCo
from paceline.baselines.training.streaming_diloco import StreamingDiLoCo
from training_task import SMALL, make_model, make_task, moves_of, on_ranks, play

Array = npt.NDArray[np.float64]
Trajectory = list[tuple[Array, Array]]
"""After each step, and after the end: weights of replicas, (ranks, P), and weights that they would ship."""


def begin(ranks: int) -> Array:
    """Return the first weights of every rank, (ranks, P)."""
    weights = torch.cat([p.detach().reshape(-1) for p in make_model(SMALL).parameters()])
    return np.repeat(weights.double().numpy()[None], ranks, axis=0)


def hold(kind: Callable[..., Any], expected: Trajectory, moves_SRP: torch.Tensor) -> None:
    """Hold a technique against a written-out trajectory, step by step."""
    for (own, shipped), (own_RP, shipped_RP) in zip(play(kind, moves_SRP), expected, strict=True):
        for rank in range(len(own)):
            np.testing.assert_allclose(own[rank].numpy(), own_RP[rank], rtol=0, atol=2e-6)
            np.testing.assert_allclose(shipped[rank].numpy(), shipped_RP[rank], rtol=0, atol=2e-6)


# DiLoCo and INTELLECT-1

DILOCO = {"sync_every": 3, "outer_rate": 0.6, "outer_momentum": 0.8}


def diloco_trajectory(moves_SRP: Array) -> Trajectory:
    steps, ranks, _ = moves_SRP.shape
    theta, phi = begin(ranks), begin(1)[0]
    m = np.zeros_like(phi)
    trajectory = []
    for t in range(steps):
        theta = theta + moves_SRP[t]
        if (t + 1) % 3 == 0 or t + 1 == steps:
            outer = (phi - theta).mean(axis=0)
            m = 0.8 * m + outer
            phi = phi - 0.6 * (outer + 0.8 * m)
            theta = np.repeat(phi[None], ranks, axis=0)
        trajectory.append((theta, np.repeat(phi[None], ranks, axis=0)))
    return [*trajectory, trajectory[-1]]


@pytest.mark.parametrize("kind", [DiLoCo, partial(Intellect1, bits=32)])
def test_an_outer_step_is_nesterovs_on_the_mean_displacement(kind: Callable[..., Any]) -> None:
    moves = moves_of(8, 3)
    expected = diloco_trajectory(moves.double().numpy())
    hold(partial(kind, **DILOCO), expected, moves)
    for wrong in ({"outer_momentum": 0.0}, {"outer_rate": 0.7}, {"sync_every": 4}):
        with pytest.raises(AssertionError):
            hold(partial(kind, **(DILOCO | wrong)), expected, moves)


@pytest.mark.parametrize("ranks", [2, 4])
def test_eight_bits_change_the_mean_displacement_by_their_rounding_alone(ranks: int) -> None:
    moves = moves_of(3, ranks)
    exact = -moves.double().numpy().sum(axis=0).mean(axis=0)
    shipped = play(partial(Intellect1, **DILOCO), moves)[2][1]
    assert all(torch.equal(shipped[0], other) for other in shipped)
    found = (begin(1)[0] - shipped[0].double().numpy()) / (0.6 * 1.8)
    error = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    bound = (
        12 / 256 / math.sqrt(12) * math.sqrt((ranks + 1) / 2)
    )  # of a uniform error in buckets 12σ/256 wide
    assert 0.5 * bound < error < 1.3 * bound


# NoLoCo

ALPHA, BETA, GAMMA = 0.4, 0.7, 1.1


def noloco_trajectory(moves_SRP: Array, pairs_of: Sequence[dict[int, int]]) -> Trajectory:
    steps, ranks, _ = moves_SRP.shape
    theta, phi = begin(ranks), begin(ranks)
    delta = np.zeros_like(phi)
    trajectory = []
    for t in range(steps):
        theta = theta + moves_SRP[t]
        if t % 2 == 1:
            partner = pairs_of[t // 2]
            before, moved = phi.copy(), theta - phi
            for i in range(ranks):
                group = [i, partner[i]] if i in partner else [i]
                mean_move, mean_phi = moved[group].mean(axis=0), before[group].mean(axis=0)
                delta[i] = ALPHA * delta[i] + BETA * mean_move - GAMMA * (before[i] - mean_phi)
                phi[i] = before[i] + delta[i]
            theta = phi.copy()
        trajectory.append((theta.copy(), phi.copy()))
    return [*trajectory, trajectory[-1]]


@pytest.mark.parametrize("ranks", [4, 3])
def test_partners_mix_momenta_moves_and_weights(ranks: int) -> None:
    moves = moves_of(8, ranks)
    pairs_of = [noloco.partners(make_task().seed, number, range(ranks)) for number in range(4)]
    assert all(len(pairs) == ranks // 2 * 2 for pairs in pairs_of)
    assert len({tuple(sorted(pairs.items())) for pairs in pairs_of}) > 1, "one pairing would mix no others"
    expected = noloco_trajectory(moves.double().numpy(), pairs_of)
    right = {"sync_every": 2, "alpha": ALPHA, "beta": BETA, "gamma": GAMMA}
    hold(partial(NoLoCo, **right), expected, moves)
    for wrong in ({"alpha": BETA, "beta": ALPHA}, {"gamma": -GAMMA}, {"gamma": 0.0}, {"beta": -BETA}):
        with pytest.raises(AssertionError):
            hold(partial(NoLoCo, **(right | wrong)), expected, moves)


# Streaming DiLoCo

STREAMING: dict[str, Any] = {
    "sync_every": 6,
    "fragments": 3,
    "delay": 3,
    "mixing": 0.3,
    "outer_rate": 0.6,
    "outer_momentum": 0.8,
    "bits": 32,
}


def streaming_trajectory(moves_SRP: Array) -> Trajectory:
    steps, ranks, count = moves_SRP.shape
    theta, phi = begin(ranks), begin(1)[0]
    m = np.zeros_like(phi)
    fragments = np.array_split(np.arange(count), 3)
    travelling: dict[int, tuple[int, Array]] = {}
    trajectory = []

    def arrive(f: int) -> None:
        part, (_, outer) = fragments[f], travelling.pop(f)
        m[part] = 0.8 * m[part] + outer
        phi[part] -= 0.6 * (outer + 0.8 * m[part])
        theta[:, part] = 0.3 * theta[:, part] + 0.7 * phi[part]

    for t in range(steps):
        theta = theta + moves_SRP[t]
        for f, part in enumerate(fragments):
            if t + 1 - 6 - 2 * f >= 0 and (t + 1 - 6 - 2 * f) % 6 == 0:
                travelling[f] = t + 3, (phi[part] - theta[:, part]).mean(axis=0)
        for f in [f for f, (due, _) in travelling.items() if due == t]:
            arrive(f)
        trajectory.append((theta.copy(), np.repeat(phi[None], ranks, axis=0)))
    for f in list(travelling):
        arrive(f)
    return [*trajectory, (theta.copy(), np.repeat(phi[None], ranks, axis=0))]


def test_fragments_leave_in_turn_and_are_mixed_in_when_they_arrive() -> None:
    moves = moves_of(20, 3)
    expected = streaming_trajectory(moves.double().numpy())
    assert not np.array_equal(expected[-1][0], expected[-2][0]), "something is under way at the end"
    hold(partial(StreamingDiLoCo, **STREAMING), expected, moves)
    for wrong in ({"mixing": 0.7}, {"delay": 2}, {"fragments": 2}, {"outer_momentum": 0.0}, {"bits": 4}):
        with pytest.raises(AssertionError):
            hold(partial(StreamingDiLoCo, **(STREAMING | wrong)), expected, moves)


# SparseLoCo


def two_bits(chosen: Array) -> Array:
    """Return what signs and two levels make of a chunk's chosen values."""
    size = np.abs(chosen)
    large = size >= size.mean()
    level = np.where(large, size[large].mean(), size[~large].mean())
    return np.sign(chosen) * level


def sparse_trajectory(moves_SRP: Array, bits: int, mean_over: str) -> Trajectory:
    steps, ranks, count = moves_SRP.shape
    theta, phi = begin(ranks), begin(1)[0]
    e = np.zeros((ranks, count))
    trajectory = []
    for t in range(steps):
        theta = theta + moves_SRP[t]
        if t % 2 == 1:
            e = 0.9 * e + (phi - theta)
            sent, chosen = np.zeros_like(e), np.zeros_like(e)
            for i in range(ranks):
                for start in range(0, count, 4096):
                    chunk = e[i, start : start + 4096]
                    places = np.argsort(-np.abs(chunk))[:64]
                    values = chunk[places] if bits == 32 else two_bits(chunk[places])
                    sent[i, start + places] = values
                    chosen[i, start + places] = 1
            e = e - sent
            divisor = ranks if mean_over == "ranks" else np.maximum(chosen.sum(axis=0), 1)
            phi = phi - 0.8 * sent.sum(axis=0) / divisor
            theta = np.repeat(phi[None], ranks, axis=0)
        trajectory.append((theta, np.repeat(phi[None], ranks, axis=0)))
    return [*trajectory, trajectory[-1]]


class Forgetful(SparseLoCo):
    """Keeps nothing of what it did not send."""

    def exchange_parameters(self, step: int) -> None:
        """Begin each round with an empty accumulator."""
        self.sparse.unsent.zero_()
        super().exchange_parameters(step)


@pytest.mark.parametrize(("bits", "mean_over"), [(2, "ranks"), (32, "ranks"), (2, "senders")])
def test_the_largest_of_a_decayed_accumulator_are_sent_and_taken_out_of_it(bits: int, mean_over: str) -> None:
    moves = moves_of(10, 3)
    expected = sparse_trajectory(moves.double().numpy(), bits, mean_over)
    right: dict[str, Any] = {"sync_every": 2, "outer_rate": 0.8, "decay": 0.9, "k": 64, "bits": bits}
    right["mean_over"] = mean_over
    hold(partial(SparseLoCo, **right), expected, moves)
    other = "senders" if mean_over == "ranks" else "ranks"
    for wrong in ({"decay": 1.0}, {"outer_rate": 2.4}, {"k": 63}, {"bits": 34 - bits}, {"mean_over": other}):
        with pytest.raises(AssertionError):
            hold(partial(SparseLoCo, **(right | wrong)), expected, moves)
    with pytest.raises(AssertionError):
        hold(partial(Forgetful, **right), expected, moves)


# EDiT

EDIT: dict[str, Any] = {
    "sync_every": 1,
    "outer_rate": 0.6,
    "outer_momentum": 0.8,
    "deviations": 2.0,
    "average_share": 0.6,
    "fill_rounds": 3,
    "temperature": 0.05,
    "longest": 0.1,
}


def edit_trajectory(theta_URP: list[Array], moves_RRP: list[Array]) -> list[list[Array]]:
    """Return each unit's global weights after every round, by unit."""
    trajectories = []
    for phi_RP, moves in zip(theta_URP, moves_RRP, strict=True):
        phi, ranks = phi_RP[0], len(phi_RP)
        m, past, trajectory = np.zeros_like(phi), [(0.0, 0.0)] * ranks, []
        for number, move_RP in enumerate(moves):
            norms = [float(np.linalg.norm(move)) for move in move_RP]
            left_out = [
                number >= 3 and g > mean + 2 * math.sqrt(variance)
                for g, (mean, variance) in zip(norms, past, strict=True)
            ]
            for i, g in enumerate(norms):
                if not left_out[i]:
                    (mean, variance), share = past[i], max(0.6, 1 / (number + 1))
                    past[i] = (
                        (1 - share) * mean + share * g,
                        (1 - share) * variance + (1 - share) * share * (g - mean) ** 2,
                    )
            weights = [0.0 if out else math.exp(-g / 0.05) for g, out in zip(norms, left_out, strict=True)]
            if sum(weights) > 0:
                outer = sum(w * -move for w, move in zip(weights, move_RP, strict=True)) / sum(weights)
                outer = outer * min(1.0, 0.1 / float(np.linalg.norm(outer)))
                m = 0.8 * m + outer
                phi = phi - 0.6 * (outer + 0.8 * m)
            trajectory.append(phi)
        trajectories.append(trajectory)
    return trajectories


def play_edit(moves_SRP: torch.Tensor, **options: Any) -> tuple[list[Array], list[list[Array]]]:
    """Return each unit's first weights, (ranks, P), and its global weights after every round."""

    def run(replica: Edit) -> tuple[list[Array], list[list[Array]]]:
        first = [unit.values.double().numpy().copy() for unit in replica.units]
        trajectory: list[list[Array]] = [[] for _ in replica.units]
        for step, moves in enumerate(moves_SRP[:, replica.comm.rank]):
            parts = moves.split([len(unit.values) for unit in replica.units])
            for unit, part in zip(replica.units, parts, strict=True):
                unit.values.add_(part)
            replica.exchange_parameters(step)
            for number in range(len(replica.units)):
                replica._arrive(number)  # as the next forward does
            for number, unit in enumerate(replica.units):
                assert torch.equal(unit.values, replica.slow[number])
                trajectory[number].append(unit.values.double().numpy().copy())
        return first, trajectory

    steps, ranks, _ = moves_SRP.shape
    kind = partial(Edit, **(EDIT | options))
    found = [f for _, f in on_ranks(kind, ranks, run, size=SMALL, steps=steps, optimizer_name="sgd")]
    for unit in range(len(found[0][1])):
        assert all(np.array_equal(found[0][1][unit][-1], other[1][unit][-1]) for other in found)
    return [np.repeat(first[None], ranks, axis=0) for first in found[0][0]], found[0][1]


LENGTHS = [
    [1.0, 1.4, 0.8, 0.8, 0.7, 0.7, 5.0, 0.6],
    [1.0, 1.4, 0.8, 0.8, 5.0, 0.7, 5.0, 0.6],
    [1.0, 1.4, 0.8, 0.8, 0.8, 1.25, 5.0, 0.6],
]
"""Of each rank's moves, round after round: one is odd by far, one only beside its latest past, and once all are."""


def edit_moves() -> torch.Tensor:
    """Return moves with ``LENGTHS``, (rounds, ranks, P)."""
    return moves_of(8, 3) * torch.tensor(LENGTHS).T[:, :, None] / 4


def test_units_take_the_penalised_mean_of_replicas_that_are_not_odd() -> None:
    moves = edit_moves()
    first, found = play_edit(moves)
    sizes = np.cumsum([unit.shape[1] for unit in first])[:-1]
    parts = [list(part) for part in np.split(moves.double().numpy(), sizes, axis=2)]
    expected = edit_trajectory(first, parts)
    np.testing.assert_allclose(
        np.concatenate([np.stack(c) for c in found], axis=1),
        np.concatenate([np.stack(c) for c in expected], axis=1),
        rtol=0,
        atol=2e-6,
    )
    assert all(np.array_equal(trajectory[6], trajectory[5]) for trajectory in expected), (
        "all are odd in the seventh round"
    )
    right = np.concatenate([trajectory[-1] for trajectory in expected])
    for wrong in (
        {"deviations": 1e9},
        {"temperature": 0.1},
        {"longest": 1e9},
        {"outer_momentum": 0.0},
        {"average_share": 0.1},
    ):
        _, other = play_edit(moves, **wrong)
        assert np.abs(np.concatenate([trajectory[-1] for trajectory in other]) - right).max() > 1e-5, wrong
