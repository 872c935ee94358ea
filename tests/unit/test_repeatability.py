"""A device that does not repeat itself: its own deviation is measured and allowed for, and hides no wrong technique."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline.baselines.training import ddp_naive, no_communication
from thread_ranks import on_ranks_of_threads
from torch import Tensor

from paceline.families.training.api import model as model_module
from paceline.families.training.api.model import Transformer, causal_attention
from paceline.families.training.api.replica import FlatReplica, Replica
from paceline.families.training.api.sizes import SIZES
from paceline.families.training.core.data.corpus import markov
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs import gate, oracle, repeatability
from paceline.families.training.core.proofs.repeatability import (
    Repeated,
    deterministic,
    deviation,
    leave_repeated,
)
from paceline.families.training.core.proofs.serial import gradient_of
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.group_control import control_over
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.ranks.session import CaseError

RATE = 0.01
SEED = 11
draws_of_rank = threading.local()
"""Each rank's own generator: ranks are threads, which would draw from a common one in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy(Setting):
    """Every gradient deviates by normal noise, relative to its tensor's root mean square, anew each time."""

    noise: float

    def model(self) -> Transformer:
        """Return the model, whose gradients are drawn around the true ones."""
        model = Setting.model(self)

        def noisy(gradient: Tensor) -> Tensor:
            drawn = torch.randn(gradient.shape, generator=getattr(draws_of_rank, "generator", None))
            return gradient + self.noise * gradient.square().mean().sqrt() * drawn

        for parameter in model.parameters():
            parameter.register_hook(noisy)
        return model


def setting_of(*, noise: float, optimizer: str = "adamw") -> Setting:
    return Noisy(
        corpus=markov(),
        size=SIZES["nano"],
        context=16,
        batch_size=4,
        steps=8,
        optimizer=optimizer,
        peak_rate=RATE,
        warmup_steps=0,
        device=torch.device("cpu"),
        model_seed=1,
        data_seed=2,
        shared_seed=3,
        noise=noise,
    )


class Sums(FlatReplica):
    """Forgets to divide."""

    def exchange_gradients(self, step: int) -> None:
        """Leave twice the mean."""
        self.flat.gradients.mul_(2)


class Strides(FlatReplica):
    """Takes steps that are too long by a hundredth."""

    def update(self, step: int) -> None:
        """Step, and go on."""
        begin = [w.detach().clone() for w in self.model.parameters()]
        super().update(step)
        with torch.no_grad():
            for weight, before in zip(self.model.parameters(), begin, strict=True):
                weight.add_(weight - before, alpha=0.01)


def session_of(hub: ThreadHub, control: ThreadHub, rank: int, kind: Callable[..., Replica]) -> Any:
    """Return what the gate asks a session for."""
    transport = ThreadTransport(hub, rank)
    promised = SimpleNamespace(diagnoses=False)
    info = SimpleNamespace(promised=lambda _: promised)

    def watch(**_: bool) -> Any:
        return nullcontext()

    return SimpleNamespace(
        rank=rank,
        world_size=hub.world_size,
        control=control_over(ThreadTransport(control, rank)),
        comm=lambda: Comm(transport),
        guard=SimpleNamespace(watch=watch),
        loaded=lambda case: SimpleNamespace(factory=kind, info=info),
        on_all_ranks=lambda make: make(),
    )


def proved(
    kind: Callable[..., Replica], setting: Setting, *, ranks: int = 1, seed: int = SEED
) -> CaseError | None:
    """Hold a technique's steps against one process; return what is wrong."""
    hub, control = ThreadHub(ranks), ThreadHub(ranks)
    case: Any = SimpleNamespace(module="technique", options={}, label="technique")

    def run(rank: int) -> CaseError | None:
        draws_of_rank.generator = torch.Generator().manual_seed(seed + rank)
        session = session_of(hub, control, rank, kind)
        try:
            gate._equals_serial(session, None, case, setting, "")  # type: ignore[arg-type]
        except CaseError as error:
            return error
        return None

    return on_ranks_of_threads(run, ranks)[0]


@pytest.fixture
def uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this CPU count as a device that need not repeat itself."""
    monkeypatch.setattr(repeatability, "repeats_itself", lambda device: False)


NOISE = {"adamw": 3e-5, "sgd": 1e-4}
"""Adam turns 3·10⁻⁵ of a gradient's root mean square into 0.004 of the way of a first step: signs flip near zero."""


@pytest.mark.parametrize("optimizer", NOISE)
def test_without_its_own_deviation_a_noisy_device_makes_an_exact_technique_incorrect(optimizer: str) -> None:
    found = proved(FlatReplica, setting_of(noise=10 * NOISE[optimizer], optimizer=optimizer))
    assert found is not None
    assert found.status == "incorrect"
    assert "of the way beside one process" in found.reason


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("optimizer", NOISE)
def test_what_the_device_deviates_from_itself_is_not_held_against_a_technique(
    optimizer: str, ranks: int, uncertain: None
) -> None:
    kind = FlatReplica if ranks == 1 else ddp_naive.DdpNaive
    assert proved(kind, setting_of(noise=NOISE[optimizer], optimizer=optimizer), ranks=ranks) is None


UNLUCKY = (1040, 1230, 1280)
"""Of thirty draws those in which the sign of a small gradient flips in one of two runs."""


def test_an_unlucky_draw_of_the_noise_makes_an_exact_technique_incorrect_only_where_it_is_not_allowed_for(
    uncertain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = setting_of(noise=NOISE["adamw"])
    assert [proved(FlatReplica, setting, seed=seed) for seed in UNLUCKY] == [None] * 3
    monkeypatch.setattr(gate, "noise_of", lambda serial, repeated: None)
    assert all(proved(FlatReplica, setting, seed=seed) is not None for seed in UNLUCKY)


@pytest.mark.full
def test_no_draw_of_the_noise_makes_an_exact_technique_incorrect(uncertain: None) -> None:
    """Held to four times its own distance alone, nine of a hundred draws were: a sign flipped in one of two runs."""
    setting = setting_of(noise=NOISE["adamw"])
    refused = [seed for seed in range(1000, 1300, 10) if proved(FlatReplica, setting, seed=seed) is not None]
    assert refused == []


def test_a_step_that_is_too_long_is_found_on_a_noisy_device(uncertain: None) -> None:
    found = proved(Strides, setting_of(noise=NOISE["adamw"]))
    assert found is not None
    assert found.status == "incorrect"
    assert "of the way beside one process" in found.reason


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_missing_division_is_found_on_a_noisy_device(noise: float, uncertain: None) -> None:
    found = proved(Sums, setting_of(noise=noise * NOISE["sgd"], optimizer="sgd"))
    assert found is not None
    assert found.status == "incorrect"
    assert "1 of the way" in found.reason


@pytest.mark.parametrize("optimizer", NOISE)
def test_a_missing_average_is_found_on_a_noisy_device(optimizer: str, uncertain: None) -> None:
    setting = setting_of(noise=NOISE[optimizer], optimizer=optimizer)
    found = proved(no_communication.NoCommunication, setting, ranks=2)
    assert found is not None
    assert found.status == "incorrect"


@pytest.mark.parametrize("optimizer", NOISE)
def test_where_the_device_deviates_too_far_nothing_is_proved(optimizer: str, uncertain: None) -> None:
    found = proved(FlatReplica, setting_of(noise=0.1, optimizer=optimizer))
    assert found is not None
    assert found.status == "unsupported"
    assert "of the way from itself" in found.reason


def test_a_device_that_repeats_itself_is_held_to_what_a_cpu_is_held_to(uncertain: None) -> None:
    setting = setting_of(noise=0.0)
    serial = Replica(setting.task(rank=0, world_size=1), Comm(ThreadTransport(ThreadHub(1), 0)))
    assert leave_repeated(serial, setting, setting.batch(0, range(4)), 1) == Repeated()
    assert oracle.REPEATABLE.of_way == oracle.REPEATABLE.of_norm == 0


@pytest.mark.parametrize("optimizer", NOISE)
def test_the_deviation_is_that_of_a_step_with_the_other_gradient(optimizer: str) -> None:
    setting = setting_of(noise=0.0, optimizer=optimizer)
    here, there = (
        Replica(setting.task(rank=0, world_size=1), Comm(ThreadTransport(ThreadHub(1), 0))) for _ in range(2)
    )
    for step in range(3):
        begin = [w.clone() for w in here.weights()]
        other: list[Tensor] = []
        for replica in (here, there):
            replica.set_rate(RATE)
            replica.forward_backward(setting.batch(step, range(4)).long())
        for number, parameter in enumerate(there.model.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            gradient_of(parameter).add_(noise * gradient_of(parameter).std() * 0.1)
            other.append(gradient_of(parameter).clone())
        here.update(step)
        there.update(step)
        allowed = [torch.zeros_like(w) for w in begin]
        expected = oracle.relative_distance(there.weights(), here.weights(), begin)
        found = deviation(here, Repeated(gradients=[other]), begin, allowed, step)
        assert found.of_way == pytest.approx(expected, rel=1e-3)
        # Both go on from the same weights and moments.
        for mine, yours in zip(here.model.parameters(), there.model.parameters(), strict=True):
            yours.data.copy_(mine.data)
            for name, value in here.optimizer.state[mine].items():
                there.optimizer.state[yours][name].copy_(value)


@contextmanager
def on(kind: str, *, compiled: bool = False) -> Iterator[None]:
    setting = replace(setting_of(noise=0.0), device=torch.device(kind), compiled=compiled)
    with deterministic(setting):
        yield


def test_proofs_on_accelerators_run_with_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(repeatability.BLAS_WORKSPACE, raising=False)
    for kind, compiled, expected in (("cuda", False, True), ("cuda", True, False), ("cpu", False, False)):
        with on(kind, compiled=compiled):
            assert torch.are_deterministic_algorithms_enabled() is expected
            assert torch.is_deterministic_algorithms_warn_only_enabled() is expected
            assert (repeatability.BLAS_WORKSPACE in os.environ) is expected
        assert not torch.are_deterministic_algorithms_enabled()
        assert repeatability.BLAS_WORKSPACE not in os.environ
        assert torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]


class Watched(torch.autograd.Function):
    """Attention whose backward notes in what mode it runs."""

    modes: list[tuple[bool, bool]]

    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return something of the right shape."""
        return q + k + v

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Note the mode."""
        strict = not torch.is_deterministic_algorithms_warn_only_enabled()
        Watched.modes.append((torch.are_deterministic_algorithms_enabled(), strict))
        return gradient, gradient, gradient


def test_attention_s_backward_is_strict_where_a_mode_that_warns_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attention(*inputs: Tensor, **_: bool) -> Any:
        return Watched.apply(*inputs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(model_module.functional, "scaled_dot_product_attention", attention)
    Watched.modes = []

    def backward() -> Sequence[tuple[bool, bool]]:
        inputs = [torch.ones(1, 2, 3, 4, requires_grad=True) for _ in range(3)]
        seen = causal_attention(*(x * 2 for x in inputs))
        seen.sum().backward()  # type: ignore[no-untyped-call]
        return Watched.modes

    assert backward()[-1] == (False, True)
    with on("cuda"):
        assert backward()[-1] == (True, True)
        # Lenient again: what has no deterministic form elsewhere must not end a proof.
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert len(Watched.modes) == 2
