"""The setting of checkpoints: a folder for each replica, in one that goes with the block."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.families.training.api.replica import Task
from paceline.families.training.api.storage import Storage
from paceline.families.training.core.data.setting import Setting
from paceline.worker.ranks.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingSetting(Setting):
    """Adds where checkpoints are written to."""

    root: Path
    """Holds the folders of all replicas."""
    folder: Path | None = None
    """Of the next replica; default: a new one."""
    delay_s: float = 0.0
    """By how much its background work begins later."""

    def furnished(self, session: Session, task: Task) -> Task:
        """Add a folder."""
        session.facts["folders"] = number = session.facts.get("folders", 0) + 1
        storage = Storage(
            self.folder or self.root / str(number),
            rank=session.rank,
            world_size=session.world_size,
            outside=session.guard.outside,
            delay_s=self.delay_s,
        )
        return replace(task, storage=storage)

    def restoring(self, folder: Path) -> SavingSetting:
        """Return the same with other weights, on a folder that something was saved to."""
        return replace(self.other_weights(), folder=folder)


def make_root(session: Session) -> Path:
    """Make the folder of a block's checkpoints; its name holds the owner.

    ``doctor --clean`` finds by it what a killed rank leaves.
    """
    made = tempfile.mkdtemp(prefix=f"paceline-checkpoints-{os.getpid()}-") if session.rank == 0 else ""
    return Path(session.control.gather_text(made)[0])


def clear(session: Session, setting: Setting) -> None:
    """Remove what techniques have written."""
    session.control.barrier()
    if session.rank == 0:
        shutil.rmtree(saving(setting).root, ignore_errors=True)


def saving(setting: Setting) -> SavingSetting:
    """Return a setting as what it is."""
    assert isinstance(setting, SavingSetting)
    return setting
