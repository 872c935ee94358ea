"""What the fork server imports once for all ranks of a job, last of all. It computes nothing: a fork is safe.

No thread may run and no accelerator may be open when ranks are forked. Techniques are not imported here: each launch
does that anew.
"""

import atexit
import gc
import importlib
import os
import shutil
from contextlib import suppress

import paceline.worker.ranks.rank  # noqa: F401
from paceline.worker.processes.fork_server import FOLDER_VARIABLE, MEASURING_VARIABLE

SERVER = os.getpid()
"""The fork server, whose death ends its ranks."""

for _name in filter(None, os.environ.pop(MEASURING_VARIABLE, "").split(",")):
    with suppress(Exception):  # a rank that needs it tries again, and tells what is wrong
        importlib.import_module(_name)

# objects that are there now are never collected, so that collections in ranks do not copy their pages
gc.collect()
gc.freeze()


def _remove(folder: str, launcher: int) -> None:
    """Remove the folder of the server's socket where the launcher was killed; otherwise it does so itself."""
    if os.getppid() != launcher:
        shutil.rmtree(folder, ignore_errors=True)


atexit.register(_remove, os.environ.pop(FOLDER_VARIABLE), os.getppid())
