"""What a technique's source may import, and by which names the harness cannot be reached."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline.base.family import family_names
from paceline.spec import content
from paceline.worker.guard import ContractBreachError, Guard
from paceline.worker.source import source_problems


def problems(tmp_path: Path, *lines: str) -> list[str]:
    path = tmp_path / "technique.py"
    path.write_text("\n".join(lines) + "\n")
    return source_problems(path)


@pytest.mark.parametrize(
    "lines",
    [
        ("from paceline.families.reasoning.core.reasoner import load",),
        ("from paceline.families.reasoning.core import reasoner",),
        ("from paceline.families import reasoning",),
        ("from paceline.families import reasoning as r", "x = r"),
        ("import paceline",),
        ("import paceline.families.reasoning.api.votes", "x = paceline"),
        ("import paceline.families.reasoning as r",),
        ("from paceline import families",),
        ("from paceline.families.serving import api",),
        ("from paceline.families.serving.core.engine import core",),
        ("from paceline.families.serving.ops.serve.figures import figures",),
        ("from paceline.families.training import api", "api.replica.Replica"),
        ("import paceline.families.training.core.corpus as c", "c.load('markov')"),
        ("from paceline.worker import session",),
        ("import torch as t", "t.distributed.barrier()"),
        ("from scipy import io",),
        ("import scipy",),
    ],
    ids="; ".join,
)
def test_the_harness_cannot_be_reached_by_another_name(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert problems(tmp_path, *lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("from paceline import technique",),
        ("from paceline.families.reasoning.api.votes import majority",),
        ("from paceline.families.serving.api.scheduling import Step",),
        ("from paceline.families.serving.api import scheduling", "scheduling.Step()"),
        ("from paceline.families.reasoning.api import votes", "votes.majority([])"),
        ("import paceline.families.training.api.exchange as exchange", "exchange.RingAverage"),
        ("import torch", "import numpy as np", "np.zeros(3)"),
    ],
    ids="; ".join,
)
def test_what_techniques_build_on_can_be_imported(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert not problems(tmp_path, *lines)


def test_no_shipped_technique_is_refused() -> None:
    found = {s.path for name in family_names() for s in content.techniques(name).values()}
    assert len(found) > 70
    assert not {str(path): problem for path in sorted(found) if (problem := source_problems(path))}


def test_threads_that_the_harness_starts_meanwhile_are_not_the_techniques() -> None:
    guard, done = Guard(), threading.Event()
    try:
        with guard.watch(), guard.outside():
            threading.Thread(target=done.wait, daemon=True).start()
        with pytest.raises(ContractBreachError, match="thread"), guard.watch():
            threading.Thread(target=done.wait, daemon=True).start()
    finally:
        done.set()
