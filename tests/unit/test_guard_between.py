"""The harness's own work between two parts of a technique: what came before is judged, what follows is watched."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.fences.seal import loaded_below


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


def test_what_is_looked_at_seldom_is_judged_and_put_back_in_a_check() -> None:
    module = ModuleType("kept")
    module.number = 1  # type: ignore[attr-defined]
    guard = Guard()
    guard.seal((), seldom=(module,))
    with guard.watch():
        module.number = 2  # type: ignore[attr-defined]
    with pytest.raises(ContractBreachError, match=r"it replaced kept\.number"):
        guard.check()
    assert module.number == 1
    guard.check()


def test_what_is_looked_at_seldom_is_put_back_when_a_technique_raises() -> None:
    module = ModuleType("kept")
    module.number = 1  # type: ignore[attr-defined]
    guard = Guard()
    guard.seal((), seldom=(module,))
    with pytest.raises(ValueError, match="mine"), guard.watch():
        module.number = 2  # type: ignore[attr-defined]
        raise ValueError("mine")
    assert module.number == 1
    with guard.watch():
        pass
    guard.check()


def _two_modules() -> tuple[Guard, ModuleType, ModuleType]:
    """A guard that in time looks at the first of two modules alone."""
    near, far = ModuleType("near"), ModuleType("far")
    near.number = far.number = 1  # type: ignore[attr-defined]
    guard = Guard()
    guard.seal((near, far), in_time=(near,))
    return guard, near, far


def test_in_time_only_what_a_step_rests_on_is_looked_at_and_a_check_sees_the_rest() -> None:
    guard, _, far = _two_modules()
    with guard.watch(in_time=True):
        far.number = 2  # type: ignore[attr-defined]
    with pytest.raises(ContractBreachError, match=r"it replaced far\.number"):
        guard.check()
    assert far.number == 1
    guard.check()


def test_what_a_step_rests_on_is_judged_at_once() -> None:
    guard, near, _ = _two_modules()
    with pytest.raises(ContractBreachError, match=r"it replaced near\.number"), guard.watch(in_time=True):
        near.number = 2  # type: ignore[attr-defined]
    assert near.number == 1


def test_a_step_that_raises_is_looked_at_in_whole() -> None:
    guard, _, far = _two_modules()
    with pytest.raises(ValueError, match="mine"), guard.watch(in_time=True):
        far.number = 2  # type: ignore[attr-defined]
        raise ValueError("mine")
    assert far.number == 1


def test_beside_time_all_is_looked_at_at_once() -> None:
    guard, _, far = _two_modules()
    with pytest.raises(ContractBreachError, match=r"it replaced far\.number"), guard.watch():
        far.number = 2  # type: ignore[attr-defined]


def test_clocks_are_looked_at_in_time() -> None:
    guard, _, _ = _two_modules()
    clock = time.perf_counter
    with pytest.raises(ContractBreachError, match=r"time\.perf_counter"), guard.watch(in_time=True):
        time.perf_counter = lambda: 0.0
    assert time.perf_counter is clock


def test_what_is_loaded_below_a_package_is_its_modules_and_no_packages() -> None:
    names = [module.__name__ for module in loaded_below("paceline.worker", "paceline.bas")]
    assert "paceline.worker.fences.guard" in names
    assert all(name.startswith("paceline.worker.") for name in names)
    assert not [name for name in names if hasattr(sys.modules[name], "__path__")]
