"""The process of one rank of one launch, with torchrun's environment: spawned, or forked from the fork server.

The order matters: die with the launcher, enter the network namespace, limit memory, choose how threads are scheduled,
which they inherit; only then import torch (a forked rank has it already, and has used nothing of it); fence; only then
import techniques. What a family starts early inherits limits and scheduling, and nothing of torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PRELOADED = "paceline.worker.ranks.preloaded"
"""What the fork server has imported."""
FAILED_EXIT_CODE = 1
"""Exit code of a rank that failed outside of any block."""
TOGETHER_S = 1.0
"""How long a rank that failed stays: with the first all are ended, and others may have something to say."""


def forked(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Be a rank in a process that was forked from the fork server.

    Args:
        arguments: Those of ``main``.
        environment: Variables of the rank, its place in the group among them.
    """
    from paceline.worker.processes import process  # noqa: PLC0415 - before torch

    # at once, and by its number: a server that was killed since the fork is nobody's parent any more
    process.die_with_parent(getattr(sys.modules.get(PRELOADED), "SERVER", None))
    os.environ.update(environment)
    process.let_fork_server_end()
    process.seed_generators()
    sys.exit(main(arguments))


def main(arguments: list[str]) -> int:
    """Run this rank's share of an attempt; return the process's exit code.

    Args:
        arguments: Job folder, group, launch and attempt.
    """
    from paceline.worker.processes import process  # noqa: PLC0415 - before torch

    job, group, launch, attempt = (
        Path(arguments[0]),
        arguments[1],
        int(arguments[2]),
        int(arguments[3]),
    )
    process.die_with_parent()
    rank = int(os.environ["RANK"])
    process.set_name(f"paceline:{rank}")
    process.redirect_output(job / f"rank-{rank}.log")
    try:
        return _run(job, group, launch, attempt, rank)
    except Exception as error:
        _tell(error, job, launch, attempt, rank)
        return FAILED_EXIT_CODE
    finally:
        process.end_children()


def _run(job: Path, group: str, launch: int, attempt: int, rank: int) -> int:
    from paceline.worker.network.namespace import enter  # noqa: PLC0415
    from paceline.worker.processes import process  # noqa: PLC0415 - before torch

    process.require_untouched_accelerators()
    namespace = os.environ.pop("PACELINE_NAMESPACES", "")
    if namespace:
        enter(namespace.split(",")[rank])
    process.limit_memory(os.environ.get("PACELINE_RANK_MEMORY"))
    process.dump_stacks_on_signal(job / "logs" / f"stack-{group}-{launch}-{attempt}-{rank}.txt")
    process.set_scheduling(os.environ.pop("PACELINE_SCHEDULING", "normal"))
    _begin_early(group.partition("-")[0])
    from paceline.worker.ranks.rank import run_rank  # noqa: PLC0415 - torch is imported from here on

    return run_rank(job, group=group, launch=launch, attempt=attempt)


def _tell(error: Exception, job: Path, launch: int, attempt: int, rank: int) -> None:
    """Write why this rank fails where the launcher looks for it, and into its log."""
    from paceline.worker.events import START, EventLog  # noqa: PLC0415 - after the fences of the process

    traceback.print_exception(error)
    with suppress(OSError):  # a full disk: the launcher looks for room itself
        events = EventLog(job / f"events-{rank}.jsonl", launch=launch, attempt=attempt, rank=rank)
        events.raised(error, context=START, status="infrastructure")
        events.close()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        time.sleep(TOGETHER_S)


def _begin_early(family: str) -> None:
    """Let a family start what takes as long as importing torch, and may go on beside it."""
    core = f"paceline.families.{family}.core"
    if all(importlib.util.find_spec(name) is not None for name in (core, f"{core}.early")):
        importlib.import_module(f"{core}.early").begin()
