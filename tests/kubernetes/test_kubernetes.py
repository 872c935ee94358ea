"""Runs through the real kubectl: pods that meet and measure, every way of ending badly, and controllers that die."""

from __future__ import annotations

import pytest
from fake_cluster import Cluster
from kubernetes_runs import IMAGE, POINT, Start

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("jobset", [False, True])
def test_two_pods_meet_by_the_services_names_and_measure_together(
    cluster: Cluster, start: Start, jobset: bool
) -> None:
    run = start(*POINT, jobset=jobset)
    code, output = run.end()
    assert code == 0, output
    lines = run.record()
    measured = [m for m in lines if m["line"] == "measurement"]
    assert {m["status"] for m in measured} == {"ok"}
    assert {(m["scale"]["nodes"], m["scale"]["ranks"]) for m in measured} == {(2, 2)}
    (submitted,) = [e["data"] for e in lines if e.get("kind") == "submitted"]
    (ended,) = [e["data"] for e in lines if e.get("kind") == "task_end"]
    assert (ended["state"], ended["nodes"]) == ("COMPLETED", "n0,n1")
    assert IMAGE in submitted["script"]
    assert submitted["version"] == "Kubernetes v1.33.0-fake"
    assert cluster.objects == {}
