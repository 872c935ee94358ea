"""What the fork server imports once for all ranks of a job. It computes nothing, so that a fork is safe.

No thread may run and no accelerator may be open when ranks are forked. Families and techniques are not imported here:
each launch does that anew.
"""

import atexit
import gc
import os
import shutil

import numpy  # noqa: F401
import torch.distributed  # noqa: F401

import paceline.worker.rank  # noqa: F401
from paceline.worker.fork_server import FOLDER_VARIABLE

# objects that are there now are never collected, so that collections in ranks do not copy their pages
gc.collect()
gc.freeze()
# the launcher removes the folder of the server's socket; if it was killed, the server does
atexit.register(shutil.rmtree, os.environ.pop(FOLDER_VARIABLE), ignore_errors=True)
