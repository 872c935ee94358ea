"""A host's aggregation of updates: every way gives the mean, and ends whatever happens to its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from paceline.baselines.programs.lifl import Lifl

from paceline.families.programs.api import aggregation
from paceline.families.programs.api.aggregation import WAYS, expected, update

MODULE = "paceline.families.programs.api.aggregation"


def printed(way: str, updates: int, numbers: int) -> str:
    command = [sys.executable, "-m", MODULE, way, str(updates), str(numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("updates", "numbers"), [(4, 1000), (9, 70_001), (33, 12_345), (1, 5)])
def test_every_way_prints_the_mean(way: str, updates: int, numbers: int) -> None:
    assert printed(way, updates, numbers) == expected(updates, numbers)


@pytest.mark.parametrize(("updates", "numbers"), [(4, 1000), (7, 1003), (1, 5), (32, 6)])
def test_what_is_expected_is_the_closed_form(updates: int, numbers: int) -> None:
    total = np.zeros(numbers, dtype=np.float32)
    for number in range(updates):
        made = np.empty_like(total)
        update(number, made)
        assert made[0] == number and made[4] == number + 4
        total += made
    mean = (total / updates).astype(np.float64)
    assert expected(updates, numbers) == " ".join(f"{v:.1f}" for v in (mean.sum(), *mean[:5]))


def test_a_process_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(aggregation, "add_slots", fails)
    assert aggregation.main(["shared-memory", "2", "100"]) == 1
    assert "2 of 6 processes failed" in capfd.readouterr().err


def test_the_check_knows_right_from_wrong() -> None:
    program = Lifl(way="broker").program("8 500")
    assert program.argv[2:] == (MODULE, "broker", "8", "500")
    right, wrong = expected(8, 500), expected(9, 500)
    for text, status in ((right, 0), (wrong, 1), ("", 1)):
        assert subprocess.run(program.check, input=text, text=True, check=False).returncode == status
    assert Lifl().program("1").argv[-2:] == ("4", "1000") and Path(program.argv[0]).is_absolute()
