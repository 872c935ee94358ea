"""What a technique's source may import, and by which names the harness cannot be reached."""

from __future__ import annotations

import gc
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from paceline.base.families.family import family_names
from paceline.spec import content
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.fences.source import source_problems


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
        ("import paceline.families.training.core.data.corpus as c", "c.load('markov')"),
        ("from paceline.worker.ranks import session",),
        ("import torch as t", "t.distributed.barrier()"),
        ("from scipy import io",),
        ("import scipy",),
        ("import liger_kernel",),
        ("from liger_kernel.transformers import monkey_patch",),
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
        ("from scipy.optimize import linear_sum_assignment",),
        ("from liger_kernel.transformers.functional import liger_cross_entropy",),
        ("import flashinfer", "flashinfer.BatchDecodeWithPagedKVCacheWrapper"),
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


def test_what_a_thread_of_the_techniques_does_is_held_against_it(tmp_path: Path) -> None:
    place = tmp_path / "events"

    def write() -> None:
        with suppress(ContractBreachError):
            place.write_text("forged")

    def joined() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    guard = Guard(threads=True)
    refused = r"in a thread of its own it opened '.*events' for writing"
    with pytest.raises(ContractBreachError, match=refused), guard.watch():
        joined()
    assert not place.exists()
    # It is told once, and held against nobody else.
    with guard.watch():
        pass
    with guard.watch(building=True):
        joined()
    with guard.watch(), guard.outside():
        place.unlink()
        joined()
    joined()
    assert place.read_text() == "forged"


def test_threads_of_the_harness_are_nobodys_while_a_technique_runs(tmp_path: Path) -> None:
    begin, done = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        (tmp_path / "own").write_text("x")
        done.set()

    threading.Thread(target=work, daemon=True).start()
    with Guard(threads=True).watch():
        begin.set()
        done.wait()
    assert (tmp_path / "own").read_text() == "x"


@pytest.mark.parametrize("what", ["handler", "collector"])
def test_nothing_may_be_left_that_runs_between_calls(what: str) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        with pytest.raises(ContractBreachError, match=r"signal\.signal|gc\.callbacks"), Guard().watch():
            if what == "handler":
                signal.signal(signal.SIGUSR2, lambda number, frame: None)
            else:
                gc.callbacks.append(print)
    finally:
        signal.signal(signal.SIGUSR2, before)
        if print in gc.callbacks:
            gc.callbacks.remove(print)
