"""The test processes' own hook for audit events hears for all that are alive, and refuses for them."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_hooks import AuditHooks

from paceline.worker.fences.guard import ContractBreachError, Guard


class Ear:
    def __init__(self, refused: str = "") -> None:
        self.heard: list[str] = []
        self.refused = refused

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.heard.append(event)
        if event == self.refused:
            raise RuntimeError(f"{event} is refused")


def test_all_that_are_alive_hear_an_event_and_each_can_refuse_it() -> None:
    hooks, first, second = AuditHooks(), Ear(), Ear(refused="b")
    hooks.add(first.hear)
    hooks.add(second.hear)
    hooks.hear("a", ())
    with pytest.raises(RuntimeError, match="b is refused"):
        hooks.hear("b", ())
    assert (first.heard, second.heard) == (["a", "b"], ["a", "b"])


def test_those_that_are_gone_are_forgotten_and_functions_stay() -> None:
    hooks, heard = AuditHooks(), []
    hooks.add(Ear().hear)
    hooks.add(lambda event, _: heard.append(event))
    gc.collect()
    hooks.hear("a", ())
    assert (len(hooks), heard) == (1, ["a"])


def test_a_guard_of_this_process_refuses_by_it(tmp_path: Path) -> None:
    guard = Guard(tensors=False)
    with pytest.raises(ContractBreachError, match="for writing"), guard.watch():
        os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(ContractBreachError, match="addaudithook"), guard.watch():
        sys.addaudithook(lambda *_: None)
    assert isinstance(sys.addaudithook.__self__, AuditHooks)  # type: ignore[attr-defined]
