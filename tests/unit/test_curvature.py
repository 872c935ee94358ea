"""MKOR and K-FAC against what is written out in NumPy, and what they see of a model against its gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training import mkor
from paceline.baselines.training.kfac import Kfac
from paceline.baselines.training.mkor import Mkor, updated
from torch import Tensor
from training_task import SMALL, make_comm, make_task, on_ranks

from paceline.families.training.api.curvature import CurvatureReplica
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import FlatReplica

CONTEXT, KEEP = 16, 0.95


def sequences_of(rank: int, step: int, rows: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randint(0, 64, (rows, CONTEXT + 1), generator=generator)


def seen_by_hand(replica: CurvatureReplica, sequences_BS: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return each matrix's inputs, and its outputs' gradients of each position's own loss, without the hooks.

    A matrix's output gets a zero added of which backward leaves the gradient.
    """
    wanted = {id(p): n for n, p in enumerate(replica.model.parameters())}
    inputs: dict[int, Tensor] = {}
    probes: dict[int, Tensor] = {}

    def taken(module: Any, given: Any, output: Tensor) -> Tensor:
        number = wanted[id(module.weight)]
        inputs[number] = given[0].detach()
        probes[number] = torch.zeros_like(output, requires_grad=True)
        return output + probes[number]

    modules = [m for m in replica.model.modules() if isinstance(m, torch.nn.Linear)]
    hooks = [m.register_forward_hook(taken) for m in modules if wanted[id(m.weight)] in replica.numbers]
    loss = next_symbol_loss(replica.model, sequences_BS)
    found = torch.autograd.grad(loss, [probes[n] for n in replica.numbers])
    for hook in hooks:
        hook.remove()
    count = sequences_BS.numel() - len(sequences_BS)
    return [
        (inputs[n].flatten(0, -2).double().numpy(), (g.flatten(0, -2) * count).double().numpy())
        for n, g in zip(replica.numbers, found, strict=True)
    ]


@pytest.mark.parametrize("kind", [Mkor, Kfac])
def test_what_is_seen_makes_the_gradient(kind: Any) -> None:
    replica = kind(make_task(size=SMALL, context=CONTEXT), make_comm())
    sequences = sequences_of(0, 0)
    expected = seen_by_hand(replica, sequences)
    seen: dict[str, dict[int, Tensor]] = {"in": {}, "out": {}}
    replica.see_inputs = lambda place, rows: seen["in"].update({place: rows})
    replica.see_gradients = lambda place, rows: seen["out"].update({place: rows})
    replica.forward_backward(sequences)
    for place, gradient in enumerate(replica.matrices(replica.flat.gradients)):
        inputs, outputs = seen["in"][place], seen["out"][place]
        assert np.allclose(inputs, expected[place][0], atol=1e-6)
        assert np.allclose(outputs, expected[place][1], atol=1e-4)
        assert torch.allclose(outputs.T @ inputs / len(inputs), gradient, atol=1e-6)
    seen = {"in": {}, "out": {}}
    replica.forward_backward(sequences)
    assert not seen["in"] and not seen["out"], "it looks every ten steps"


def test_an_inverse_is_the_inverse() -> None:
    draw = np.random.default_rng(1)
    inverse, vectors = torch.eye(8, dtype=torch.float64), draw.normal(size=(6, 8)) * 0.3
    whole = np.eye(8)
    for vector in vectors:
        inverse = updated(inverse, torch.from_numpy(vector), KEEP)
        mixed = KEEP * np.linalg.inv(whole) + (1 - KEEP) * np.eye(8)
        whole = np.linalg.inv(mixed) + np.outer(vector, vector)
    assert np.allclose(inverse.numpy(), np.linalg.inv(whole), atol=1e-12)
    assert not np.allclose(np.linalg.inv(whole), np.linalg.inv(np.eye(8) + vectors.T @ vectors), atol=1e-3)


def trained(kind: Any, ranks: int, steps: int) -> list[tuple[Any, list[Tensor]]]:
    """Return each rank's replica and the matrices' gradients after the exchange, of all steps."""

    def run(replica: Any) -> list[Tensor]:
        found = []
        for step in range(steps):
            replica.forward_backward(sequences_of(replica.comm.rank, step))
            replica.exchange_gradients(step)
            found.append(replica.flat.gradients.clone())
        return found

    return on_ranks(kind, ranks, run, size=SMALL, context=CONTEXT, steps=steps)


def mkor_written_out(ranks: int, steps: int, look_every: int, most: float) -> list[list[np.ndarray]]:
    """Return the matrices' directions of all steps; weights stay, as in ``trained``."""
    plain = Mkor(make_task(size=SMALL, context=CONTEXT), make_comm())
    inverses = [[np.eye(side) for side in shape] for shape in plain.shapes]
    anew = [[True, True] for _ in plain.shapes]
    found = []
    for step in range(steps):
        seen = [seen_by_hand(plain, sequences_of(rank, step)) for rank in range(ranks)]
        of_step = []
        for place, (pair, marks) in enumerate(zip(inverses, anew, strict=True)):
            ins = [seen[rank][place][0] for rank in range(ranks)]
            outs = [seen[rank][place][1] for rank in range(ranks)]
            gradient = np.mean([o.T @ i / len(i) for i, o in zip(ins, outs, strict=True)], axis=0)
            for side, rows in enumerate((outs, ins)) if step % look_every == 0 else ():
                vector = np.mean([r.mean(axis=0) for r in rows], axis=0)
                if marks[side]:
                    pair[side], marks[side] = np.eye(len(vector)), False
                    continue
                mixed = KEEP * pair[side] + (1 - KEEP) * np.eye(len(vector))
                pair[side] = np.linalg.inv(np.linalg.inv(mixed) + np.outer(vector, vector))
                marks[side] = np.abs(pair[side]).max() > most
            direction = pair[0] @ gradient @ pair[1]
            of_step.append(direction * np.linalg.norm(gradient) / np.linalg.norm(direction))
        found.append(of_step)
    return found


def apart(kind: Any, ranks: int, expected: list[list[np.ndarray]]) -> float:
    """Return the largest distance of a direction from what is written out, over its own length."""
    far = 0.0
    for replica, gradients in trained(kind, ranks, len(expected)):
        for gradient, of_step in zip(gradients, expected, strict=True):
            for part, direction in zip(replica.matrices(gradient), of_step, strict=True):
                off = np.linalg.norm(part.double().numpy() - direction) / np.linalg.norm(direction)
                far = max(far, float(off))
    return far


class Forgetful(Mkor):
    """Never begins anew, and never updates."""

    def _renew(self) -> None:
        """Do nothing."""


class KeepsItsOwn(Mkor):
    """Means of this rank's alone."""

    def exchange_gradients(self, step: int) -> None:
        """Leave the thin ring out."""
        own = self.means.clone()
        self.thin_ring.run = lambda vector: None  # type: ignore[method-assign]
        super().exchange_gradients(step)
        assert torch.allclose(own.half().float(), self.means)


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_steps_of_mkor_are_those_written_out(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = partial(Mkor, look_every=2)
    expected = mkor_written_out(ranks, 9, 2, most=2.0)
    assert apart(kind, ranks, expected) < 2e-3, "vectors travel in float16"
    assert apart(partial(Forgetful, look_every=2), ranks, expected) > 0.02
    if ranks > 1:
        assert apart(partial(KeepsItsOwn, look_every=2), ranks, expected) > 0.02
    with monkeypatch.context() as patch:
        patch.setattr(mkor, "updated", lambda inverse, vector, keep: inverse)
        assert apart(kind, ranks, expected) > 0.02


def test_an_inverse_that_grew_too_large_begins_anew() -> None:
    kind = partial(Mkor, look_every=2, most=0.99)
    expected = mkor_written_out(1, 9, 2, most=0.99)
    assert apart(kind, 1, expected) < 2e-3
    assert apart(partial(kind, most=2.0), 1, expected) > 0.01


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_covariances_are_those_of_all_ranks_positions(ranks: int) -> None:
    plain = Kfac(make_task(size=SMALL, context=CONTEXT), make_comm())
    expected: list[list[np.ndarray]] = []
    for step in (0, 2):
        seen = [seen_by_hand(plain, sequences_of(rank, step)) for rank in range(ranks)]
        fresh = []
        for place in range(len(plain.shapes)):
            rows = [np.concatenate([seen[rank][place][side] for rank in range(ranks)]) for side in (1, 0)]
            fresh += [r.T @ r / len(r) for r in rows]
        expected = [
            f if step == 0 else KEEP * old + (1 - KEEP) * f
            for f, old in zip(fresh, expected or fresh, strict=True)
        ]
    for replica, _ in trained(partial(Kfac, look_every=2, solve_every=4), ranks, 3):
        for found, covariance in zip(replica.covariances, expected, strict=True):
            assert np.allclose(found.numpy(), covariance, atol=1e-5 * np.abs(covariance).max() + 1e-9)


def test_the_direction_of_kfac_solves_its_system() -> None:
    (replica, gradients), *_ = trained(partial(Kfac, damping=0.01), 1, 1)
    plain = FlatReplica(make_task(size=SMALL, context=CONTEXT), make_comm())
    plain.forward_backward(sequences_of(0, 0))
    place = 1
    gradient = replica.matrices(plain.flat.gradients)[place].double().numpy()
    left, right = (replica.covariances[2 * place + side].double().numpy() for side in (0, 1))
    system = np.kron(left, right) + 0.01 * np.eye(gradient.size)
    solved = np.linalg.solve(system, gradient.reshape(-1)).reshape(gradient.shape)
    solved *= np.linalg.norm(gradient) / np.linalg.norm(solved)
    found = replica.matrices(gradients[0])[place].double().numpy()
    assert np.linalg.norm(found - solved) < 1e-3 * np.linalg.norm(solved)
    assert np.linalg.norm(found - gradient) > 0.05 * np.linalg.norm(solved)


@pytest.mark.parametrize("kind", [Mkor, Kfac])
def test_replicas_stay_identical(kind: Any) -> None:
    found = trained(partial(kind, look_every=2), 3, 5)
    assert all(torch.equal(a, b) for _, gs in found for a, b in zip(gs, found[0][1], strict=True))
