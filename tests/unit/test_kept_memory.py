"""A process that keeps what it frees pays for the pages of its temporaries once."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
import torch
from paceline.worker.machine.memory import find_malloc_trim, keep_freed_memory

trim = find_malloc_trim()


def faults(call):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def temporaries():
    # 40 MiB: larger than what glibc keeps of its own accord
    for _ in range(5):
        torch.zeros(10 << 20).add_(1)


for keeps in (False, True):
    if keeps and not keep_freed_memory():
        sys.exit("no glibc")
    for _ in range(3):
        temporaries()
    print(faults(temporaries), (trim(0), faults(temporaries))[1])
"""


@pytest.mark.full  # it counts the kernel's pages
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_pages_of_temporaries_are_paid_for_once_and_shown_after_a_trim() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    if "no glibc" in done.stderr:
        pytest.skip("no glibc")
    assert done.returncode == 0, done.stderr
    as_usual, _, kept, after_trim = map(int, done.stdout.split())
    # five times 40 MiB in pages of 4 KiB, or of 2 MiB where the kernel gives huge ones
    assert as_usual >= 5 * 20
    assert kept < as_usual / 5
    # what a call needs can still be measured: memory that was given back is paid for again
    assert after_trim > kept + 20
