"""One rank of one launch: ``python -m paceline.worker JOB GROUP LAUNCH ATTEMPT`` with torchrun's environment.

The order matters: die with the launcher, enter the network namespace, limit memory; only then import torch; fence;
only then import techniques. What a family starts early inherits the limits, and nothing of torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run this rank's share of an attempt; return the process's exit code."""
    from paceline.worker import process  # noqa: PLC0415 - before torch
    from paceline.worker.namespace import enter  # noqa: PLC0415

    job, group, launch, attempt = (
        Path(arguments[0]),
        arguments[1],
        int(arguments[2]),
        int(arguments[3]),
    )
    process.die_with_parent()
    namespace = os.environ.pop("PACELINE_NAMESPACES", "")
    rank = int(os.environ["RANK"])
    if namespace:
        enter(namespace.split(",")[rank])
    process.redirect_output(job / f"rank-{rank}.log")
    process.limit_memory(os.environ.get("PACELINE_RANK_MEMORY"))
    process.dump_stacks_on_signal(job / "logs" / f"stack-{group}-{launch}-{attempt}-{rank}.txt")
    _begin_early(group.partition("-")[0])
    from paceline.worker.rank import run_rank  # noqa: PLC0415 - torch is imported from here on

    return run_rank(job, group=group, launch=launch, attempt=attempt)


def _begin_early(family: str) -> None:
    """Let a family start what takes as long as importing torch, and may go on beside it."""
    name = f"paceline.families.{family}.early"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name).begin()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
