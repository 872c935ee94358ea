"""``paceline --help`` takes hardly longer than Python takes to import some of its own library."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from side_by_side import SLOWDOWN, conclude, conclude_planted, mirrored, until_decided

import paceline.cli

WHAT = "processor time of `paceline --help` over that of imports of the standard library"
MOST = 0.96
"""Bound on the ratio.

On two cores of an AMD EPYC with Python 3.11 it was 0.76 to 0.81 in three times twelve turns, and 0.76 to 0.78 beside
two busy loops; half as much again is 1.14 at least.
"""
HELP = "import sys; sys.argv = ['paceline', '--help']; from paceline.cli import main; main()"
REFERENCE = (
    "import argparse, asyncio, dataclasses, email.message, http.client, importlib.metadata, inspect, json, logging, "
    "pathlib, typing"
)
COMPILES = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SLOWED = (
    "import atexit, time\n"
    "def spin():\n"
    "    end = {slowdown} * time.process_time()\n"
    "    while time.process_time() < end: pass\n"
    "atexit.register(spin)\n"
)


def processor_seconds(code: str) -> float:
    """Return the processor time of a Python that runs some code, with its start."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, env=COMPILES)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, code
    return used.ru_utime + used.ru_stime


def source(code: str) -> Callable[[], float]:
    """Return what measures some code; run once before, so that it is compiled, as that of any user is."""
    processor_seconds(code)
    if not Path(importlib.util.cache_from_source(paceline.cli.__file__)).exists():
        pytest.skip("what is imported cannot be kept compiled here")
    return lambda: processor_seconds(code)


@pytest.mark.measured
def test_help_is_as_quick_as_it_was(record_property: Callable[[str, object], None], module_seed: int) -> None:
    turn = mirrored(source(HELP), source(REFERENCE), random.Random(module_seed))
    conclude(until_decided(turn, MOST), WHAT, record_property)


@pytest.mark.measured
def test_a_slower_help_is_noticed(record_property: Callable[[str, object], None], module_seed: int) -> None:
    slowed = source(SLOWED.format(slowdown=SLOWDOWN) + HELP)
    turn = mirrored(slowed, source(REFERENCE), random.Random(module_seed))
    conclude_planted(until_decided(turn, MOST), WHAT, record_property)
