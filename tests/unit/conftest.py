"""Unit tests draw the same examples on every machine, and few enough that all of them together stay quick."""

from __future__ import annotations

import random
import ssl
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from package_copy import PackageCopy, copy_package

settings.register_profile(
    "unit", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")


@pytest.fixture
def copy(tmp_path: Path) -> PackageCopy:
    """A copy of the package's code, beside the suites, runners and baselines that it is shipped with."""
    return copy_package(tmp_path)


@pytest.fixture
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of this process read no certificates of authorities, 70 ms each: their servers here speak no TLS."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda self, *_, **__: None)


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Let whoever draws from a common generator draw the same in every run, whatever ran before."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        # ``torch.manual_seed`` notes the stack three times, for devices that do not exist here: 3 ms a test
        sys.modules["torch"].default_generator.manual_seed(0)
