"""First contact end to end, on the processor: steps, an interruption, job folders, records and the site."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import paceline_commands
import pytest

LIST = """first_contact: mine
runner: local-cpu
steps:
  - step: sums
    tells: what a sum costs
    suites: [tour/all-reduce]
    tier: standard
    filters: {size_bytes: 4KiB}
    launches: 1
  - step: far
    tells: what a slow link does
    suites: [collectives/edge-latency]
    tier: standard
  - step: answers
    tells: what early stopping saves
    suites: [tour/early-stopping]
    tier: standard
    launches: 1
"""


def paceline(*arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        paceline_commands.command("first-contact", *arguments),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Return a list of three steps, of which one cannot run here."""
    path = tmp_path / "list.yaml"
    path.write_text(LIST)
    return path


def test_steps_are_measured_once_and_end_in_a_site(tmp_path: Path, steps: Path) -> None:
    store, site = tmp_path / "store", tmp_path / "site"
    common = ("--list", str(steps), "--results", str(store), "--site", str(site), "--allow-concurrent")
    first = paceline(*common, "--only", "sums", "--only", "far")
    assert first.returncode == 0, first.stderr
    assert "step 1 of 2, sums: what a sum costs" in first.stdout
    assert "step 2 of 2, far: not run: nothing of it runs on local-cpu" in first.stdout
    assert (site / "index.html").is_file()
    again = paceline(*common)
    assert again.returncode == 0, again.stderr
    assert "step 1 of 3, sums: done before" in again.stdout
    assert "step 3 of 3, answers: what early stopping saves" in again.stdout


def test_jobs_are_measured_elsewhere_and_collected(tmp_path: Path, steps: Path) -> None:
    store, site, jobs = tmp_path / "store", tmp_path / "site", tmp_path / "jobs"
    made = paceline("--list", str(steps), "--output", str(jobs))
    assert made.returncode == 0, made.stderr
    assert sorted(p.name for p in jobs.iterdir()) == ["01-sums", "03-answers", "run.sh"]
    bare = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "HOME": str(tmp_path)}
    late = subprocess.run(
        ["sh", str(jobs / "run.sh"), "0"], env=bare, capture_output=True, text=True, timeout=60, check=False
    )
    assert late.stdout.count("not run: the time is over") == 2
    subprocess.run(["sh", str(jobs / "run.sh")], env=bare, check=True, capture_output=True, timeout=300)
    collected = paceline("--collect", str(jobs), "--results", str(store), "--site", str(site))
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert collected.stdout.count("; record ") == 2
    again = paceline("--collect", str(jobs), "--results", str(store), "--site", str(site))
    assert again.stdout.count("was recorded before") == 2
