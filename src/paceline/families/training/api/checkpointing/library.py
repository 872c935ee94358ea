"""PyTorch's own checkpoints of one rank's state, as its documentation has them."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter


def save_async(state: dict[str, Tensor], folder: Path) -> Future[Any]:
    """Copy a state to the host now, and write it in a thread of the library; the result comes when it is on disk."""
    # sync_files: the result comes when data are on disk, as other techniques' does. One thread, as they have.
    writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=True, thread_count=1)
    # no_dist: the library's thread would otherwise use the process group while training does.
    found = state_dict_saver.async_save(dict(state), storage_writer=writer, no_dist=True)
    assert isinstance(found, Future)
    return found


def load(state: dict[str, Tensor], folder: Path) -> None:
    """Fill the tensors of a state."""
    state_dict_loader.load(dict(state), storage_reader=FileSystemReader(folder), no_dist=True)
