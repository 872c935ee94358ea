"""Techniques that answer in processes of their own: forks of a rank from before it knew anything, or interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LONG = "ü" + "x" * 100_000
"""More than a pipe holds."""

ANSWERS = """
import gc, json, os, signal, sys, time
import numpy, torch
asked = json.load(sys.stdin)
if asked == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if asked == "sleep":
    time.sleep(60)
if asked == "fail":
    sys.exit("no idea")
known = [o["truth"] for o in gc.get_objects() if type(o) is dict and isinstance(o.get("truth"), str)]
opened = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2}
seen = bool(known == ["the answer"] or {"secret", "HF_TOKEN"} & {*os.environ} or "rank.log" in str(opened))
print(json.dumps({
    "main": __name__, "asked": asked, "seen": seen, "threads": len(os.listdir("/proc/self/task")),
    "family": sorted(m for m in sys.modules if m.startswith("paceline.families.serving.core.") and "early" not in m),
    "numpy": float(numpy.random.random()), "torch": float(torch.rand(())),
    "sum": float(torch.ones(2000, 2000).sum()),
}))
"""

RANK = """
import json, os, sys
from paceline.families.serving.core import early
from paceline.worker.processes import process
if sys.argv[1] == "forked":
    import numpy, torch
log = open(os.path.join(os.environ["PYTHONPATH"], "rank.log"), "w")
early.begin()
process.take_secrets()
knows = {"truth": "the answer"}
os.environ["secret"] = "of the rank"
if sys.argv[1] != "forked":
    del os.environ["secret"]
found = []
for asked in json.loads(sys.argv[2]):
    try:
        done = early.run("answers", json.dumps(asked), 2.0 if asked == "sleep" else 60.0)
        found.append([done.code, done.output, done.errors])
    except TimeoutError:
        found.append("took too long")
print(json.dumps(found))
"""


def asked(start: str, *documents: str, folder: Path) -> list[Any]:
    """Let a rank ask; return exit code, output and errors of each answer, or that there was none."""
    (folder / "answers.py").write_text(ANSWERS)
    done = subprocess.run(
        [sys.executable, "-c", RANK, start, json.dumps(documents)],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "HF_TOKEN": "a key"},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("start", ["forked", "spawned"])
def test_an_answer_comes_from_a_fresh_process_that_knows_what_it_was_asked(
    start: str, tmp_path: Path
) -> None:
    told = [json.loads(output) for _, output, _ in asked(start, "x", LONG, folder=tmp_path)]
    assert [t["asked"] for t in told] == ["x", LONG]
    for one in told:
        assert (one["main"], one["seen"], one["threads"], one["family"]) == ("__main__", False, 1, [])
        assert one["sum"] == 4e6
    assert told[0]["numpy"] != told[1]["numpy"]
    assert told[0]["torch"] != told[1]["torch"]


@pytest.mark.parametrize("start", ["forked", "spawned"])
def test_who_dies_fails_or_never_answers_is_told_and_the_next_one_answers(start: str, tmp_path: Path) -> None:
    died, failed, slow, well = asked(start, "die", "fail", "sleep", "x", folder=tmp_path)
    assert died == [-9, "", ""]
    assert failed[:2] == [1, ""]
    assert "no idea" in failed[2]
    assert slow == "took too long"
    assert well[0] == 0
