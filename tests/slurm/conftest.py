"""A cluster for the whole folder, and what starts runs on it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from slurm_runs import POINT, STUCK, Controller, Start, follow_a_killed_controller

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start munged, slurmctld and two slurmd; all are gone afterwards."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.getuid() or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: apt-get install slurm-wlm munge")
    # Sockets have short paths, and munged, which is not root, must be able to enter the folder.
    folder = Path(tempfile.mkdtemp(prefix="paceline-slurm-"))
    folder.chmod(0o755)
    made = Cluster(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Return what starts runs; those that go on after the test are ended."""
    starter = Start(cluster, tmp_path)
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def slow_endings(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Controller]]:
    """Begin what Slurm takes half a minute to notice, so that other tests go on meanwhile.

    One task is over its time limit. Limits count in minutes, so its end is moved to now. The other loses its node.
    """
    starter = Start(cluster, tmp_path_factory.mktemp("slow"))
    made = {
        "timeout": starter(*POINT, slurm=STUCK, name="timeout"),
        "node": starter(*POINT, slurm={**STUCK, "options": ["--nodelist=n1"]}, name="node"),
    }
    cluster.ask("scontrol", "update", f"jobid={made['timeout'].wait_for_task()}", "EndTime=now")
    made["node"].wait_for_task()
    cluster.kill_node("n1")
    made["requeued"] = follow_a_killed_controller(starter, cluster)
    yield made
    starter.close()
