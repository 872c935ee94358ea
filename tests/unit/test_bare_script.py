"""The bare script gathers and scatters what the technique does, in every step: what differs is the harness alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from paceline.baselines.training import fsdp
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.families.training.api.sizes import SIZES
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.bare_script import BareScript
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.transport import TorchTransport

STEPS = 3


class Calls(TorchDispatchMode):
    """Counts operations of process groups."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.counts[func.name()] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def transport() -> Iterator[TorchTransport]:
    """Two ranks of which the other one is pretended: calls are counted, nothing is sent."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield TorchTransport(dist.group.WORLD)
    dist.destroy_process_group()


def make_setting() -> Setting:
    return Setting(
        corpus=corpus.load("markov"),
        size=SIZES["nano"],
        context=16,
        batch_size=4,
        steps=STEPS,
        optimizer="adamw",
        peak_rate=0.01,
        warmup_steps=0,
        device=torch.device("cpu"),
        model_seed=1,
        data_seed=2,
        shared_seed=3,
    )


def test_sharded_scripts_call_the_same_collectives(transport: TorchTransport) -> None:
    setting = make_setting()
    batches = torch.randint(setting.corpus.vocabulary, (STEPS, 2, setting.context + 1))
    control = SimpleNamespace(barrier=lambda: None)
    session: Any = SimpleNamespace(
        transport=transport, control=control, device=SimpleNamespace(synchronize=lambda: None)
    )
    script = BareScript(session, setting, batches, "fsdp")
    replica = fsdp.Fsdp(setting.task(rank=0, world_size=2), Comm(transport))
    script.window(range(1))  # the first step is not like those after it
    replica.forward_backward(batches[0])
    with Calls() as theirs:
        script.window(range(1, STEPS))
    with Calls() as ours:
        for step in range(1, STEPS):
            replica.forward_backward(batches[step])
            replica.update(step)
    assert ours.counts == theirs.counts
    assert ours.counts["c10d::_reduce_scatter_base_"] > 0
