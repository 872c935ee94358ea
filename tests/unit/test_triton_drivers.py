"""A technique that needs Triton is unsupported on a device that Triton has no driver of, and does not crash there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from paceline.families.kernels.api import problem as problems
from paceline.worker.ranks.session import UnsupportedError


def problem(device: str) -> problems.Problem:
    return problems.Problem(operation="copy", dtype=torch.float32, device=torch.device(device), params={})


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand in for a Triton without a driver that finds its device."""
    module, backends = ModuleType("triton"), ModuleType("triton.backends")
    driver = SimpleNamespace(is_active=lambda: False)
    backends.backends = {"nvidia": SimpleNamespace(driver=driver)}  # type: ignore[attr-defined]
    module.backends = backends  # type: ignore[attr-defined]
    module.knobs = SimpleNamespace(runtime=SimpleNamespace(interpret=False))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)
    monkeypatch.setitem(sys.modules, "triton.backends", backends)
    monkeypatch.setattr(problems.importlib.util, "find_spec", lambda name: name)
    return module


def test_without_a_driver_of_the_device_a_point_is_unsupported(triton: ModuleType) -> None:
    with pytest.raises(UnsupportedError, match="driver of this device"):
        problems.use_triton(problem("xpu"), "auto")


def test_with_a_driver_or_in_the_interpreter_it_runs(triton: ModuleType) -> None:
    triton.knobs.runtime.interpret = True
    assert problems.use_triton(problem("xpu"), "auto")
    triton.knobs.runtime.interpret = False
    triton.backends.backends["nvidia"].driver.is_active = lambda: True
    assert problems.use_triton(problem("xpu"), "auto")


def test_on_a_cpu_no_driver_is_asked_for(triton: ModuleType) -> None:
    assert not problems.use_triton(problem("cpu"), "auto")
    assert problems.use_triton(problem("cpu"), "triton")
