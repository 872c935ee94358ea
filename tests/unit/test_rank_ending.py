"""What a rank leaves behind when it ends: nothing, and its launcher knows what its helpers took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RANK_WITH_HELPERS = """
import os, signal, subprocess, sys
from paceline.worker.ranks import entry

def helped(job, group, launch, attempt, rank):
    helpers.append(subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
                                    stdout=subprocess.PIPE))
    helpers[0].stdout.readline()
    if sys.argv[1] == "fails":
        raise ValueError("what it ran into")
    return 0

helpers, said = [], os.dup(1)
entry._run = helped
code = entry.main([sys.argv[2], "group", "0", "0"])
try:
    left = os.waitpid(helpers[0].pid, os.WNOHANG)
except ChildProcessError:
    left = "waited for"
os.write(said, f"{code} {left}".encode())
"""


@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("fails", 1)])
def test_a_rank_ends_and_waits_for_what_it_started_so_that_its_time_is_the_rank_s(
    tmp_path: Path, how: str, code: int
) -> None:
    command = [sys.executable, "-c", RANK_WITH_HELPERS, how, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "RANK": "0"}, stdout=subprocess.PIPE, timeout=50, check=True
    )
    assert done.stdout.decode() == f"{code} waited for"
