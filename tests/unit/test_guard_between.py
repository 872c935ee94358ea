"""The harness's own work between two parts of a technique: what came before is judged, what follows is watched."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from paceline.worker.guard import ContractBreachError, Guard


def test_what_was_done_before_is_judged_before_the_harness_goes_on() -> None:
    guard, reached, sleep = Guard(), [], time.sleep
    with pytest.raises(ContractBreachError, match=r"time\.sleep"), guard.watch():
        time.sleep = lambda seconds: None  # type: ignore[assignment]
        with guard.between():
            reached.append(True)
    assert not reached
    assert time.sleep is sleep


def test_a_setting_is_judged_too() -> None:
    guard = Guard()
    try:
        with pytest.raises(ContractBreachError, match="is_grad_enabled"), guard.watch():
            torch.set_grad_enabled(False)
            with guard.between():
                pass
    finally:
        torch.set_grad_enabled(True)


def test_the_harness_may_do_what_a_technique_may_not(tmp_path: Path) -> None:
    guard = Guard()
    with guard.watch(), guard.between():
        (tmp_path / "notes").write_text("the harness's")
    assert (tmp_path / "notes").exists()


def test_what_follows_is_watched(tmp_path: Path) -> None:
    guard = Guard()
    with pytest.raises(ContractBreachError, match="for writing"), guard.watch():
        with guard.between():
            pass
        (tmp_path / "notes").write_text("a technique's")


def test_what_a_library_may_do_it_may_do_afterwards(tmp_path: Path) -> None:
    guard = Guard()
    with guard.watch(building=True, library=True):
        with guard.between():
            pass
        (tmp_path / "cache").write_text("a compiler's")
        assert guard._active.library


def test_when_the_harness_fails_nothing_is_watched_any_more(tmp_path: Path) -> None:
    guard = Guard()
    with pytest.raises(ZeroDivisionError), guard.watch(), guard.between():
        raise ZeroDivisionError
    (tmp_path / "notes").write_text("the harness's")
