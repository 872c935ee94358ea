"""Paging costs the engine little of what the same model gives in a plain batched loop."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from figures import Figures

LEAST = 0.7
"""What is asked for is 0.8, and 0.83 to 0.88 are measured; the rest is room for a machine with neighbours."""


@pytest.mark.measured
def test_the_engine_is_nearly_as_fast_as_a_plain_loop_and_answers_the_same(figure: Figures) -> None:
    command = [sys.executable, "-m", "paceline.families.serving.core.engine.plain", "small"]
    sizes = ["--batch", "16", "--prompt", "64", "--answer", "32", "--rounds", "9"]
    ran = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = re.search(r"of processor time: ([\d.]+)", ran.stdout)
    assert found is not None, ran.stdout
    figure(
        "the engine's tokens over a plain loop's, of processor time",
        float(found[1]),
        unit="ratio",
        least=LEAST,
    )
