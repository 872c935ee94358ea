"""A process that ends with its parent: also where the parent was gone before the process could ask for that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

NOBODY = 2**22 + 1
"""A number that Linux gives no process."""
CODE = "import sys; from paceline.worker.processes import process; process.die_with_parent({}); sys.exit(7)"


@pytest.mark.parametrize(("parent", "code"), [("whoever", 7), ("this", 7), ("nobody", -signal.SIGKILL)])
def test_a_process_whose_parent_is_another_than_it_has_to_be_ends(parent: str, code: int) -> None:
    number = {"whoever": "", "this": os.getpid(), "nobody": NOBODY}[parent]
    assert subprocess.run([sys.executable, "-c", CODE.format(number)], check=False).returncode == code
