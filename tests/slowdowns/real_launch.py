"""Starts launches as the launcher does, and ends each where its measurement may begin.

Run it as a script with a job folder and the number by which starts are to be slowed, 1: not at all. It says ``ready``.
For each line that it is given it starts the ranks of a launch, and answers with a line of JSON: seconds until the last
rank could measure, and processor seconds of all ranks until then and of the launcher.

Ranks import this file again, as they do with the launcher's: it imports what that imports, and nothing else.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.worker import launch
from paceline.worker.launches import attempt
from paceline.worker.processes import fork_server
from paceline.worker.ranks import entry

SLOWED, BEGAN = "PACELINE_TESTS_SLOWED", "PACELINE_TESTS_BEGAN"
"""Variables of ranks: by what they are slowed, and the instant at which their launch began."""
_forked = entry.forked


def forked(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Be a rank until its measurement may begin; then write the instant and its processor time, and end well."""
    from paceline.worker.ranks import rank

    def ready(session: Any, blocks: list[dict[str, Any]]) -> int:
        _be_slower(float(environment[SLOWED]), float(environment[BEGAN]))
        session.control.barrier()  # all ranks of a group begin together
        told = [time.monotonic(), time.process_time()]
        Path(arguments[0], f"ready-{session.rank}.json").write_text(json.dumps(told))
        return 0

    rank.run_blocks = ready
    _forked(arguments, environment)


def _be_slower(slowed: float, began_s: float) -> None:
    """Take as many times the processor time, and the time since the launch began, as are told."""
    end_s = began_s + slowed * (time.monotonic() - began_s)
    end_cpu_s = slowed * time.process_time()
    while time.process_time() < end_cpu_s:
        pass
    time.sleep(max(end_s - time.monotonic(), 0.0))


def one(job: launch.Job) -> dict[str, float]:
    """Start the ranks of one launch; return what it took."""
    (group,) = job.plan["groups"]
    cpu_s, began_s = time.process_time(), time.monotonic()
    job.plan["runner"]["env"][BEGAN] = str(began_s)
    ending = attempt.run_ranks(job, group, 0, 0)
    cpu_s = time.process_time() - cpu_s
    assert ending.well, ending
    told = [json.loads((job.folder / f"ready-{rank}.json").read_text()) for rank in range(group["ranks"])]
    return {
        "wall_s": max(at_s for at_s, _ in told) - began_s,
        "cpu_s": cpu_s + sum(own_s for _, own_s in told),
    }


def main(folder: Path, slowed: str) -> None:
    """Serve until standard input is closed."""
    job = launch.Job(folder)
    (group,) = job.plan["groups"]
    work = {"blocks": job.plan["blocks"], "describe_host": False, "proofs": {}}
    (folder / "attempts" / f"{group['group']}-0-0.json").write_text(json.dumps(work))
    job.plan["runner"]["env"][SLOWED] = slowed
    entry.forked = forked
    fork_server.begin(job.plan)
    try:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(one(job)), flush=True)
    finally:
        fork_server.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
