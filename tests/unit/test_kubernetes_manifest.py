"""Manifests as text: every kind of request, word for word, and by the schemas of Kubernetes itself."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.errors import UserError
from paceline.drivers.kubernetes.driver import folder_in_volume
from paceline.drivers.kubernetes.manifest import MAX_NAME, SCRIPT, Request, dns_label, manifest, render
from paceline.spec.profiles.kubernetes import DNS_LABEL, KubernetesModel, resolved_kubernetes

GOLDENS = Path(__file__).parent / "goldens"
REWRITE = "PACELINE_WRITE_GOLDENS"
IMAGE = "registry.example:5000/team/paceline:1.2@sha256:" + "0123456789abcdef" * 4
RUN = "01907d1c-1111-7222-8333-444455556666"
HOST = {"image": IMAGE, "volume": {"host_path": "/shared"}}
CLAIM = {"image": IMAGE, "volume": {"claim": "results", "root": "/mnt/results"}}
GPUS = {
    "nodes": 2,
    "devices_per_node": 8,
    "cpus_per_node": 32,
    "memory_per_node": "256GiB",
    "shm_size": "16GiB",
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kubernetes-plain": ("cpu", HOST),
    "kubernetes-cuda": (
        "cuda",
        CLAIM
        | GPUS
        | {
            "namespace": "ml",
            "service_account": "bench",
            "node_selector": {"example.com/gpu": "h100", "pool": "1e3"},
            "priority_class": "batch",
            "runtime_class": "nvidia",
            "pull_secret": "registry",
            "time_limit": "90min",
        },
    ),
    "kubernetes-rdma": (
        "cuda",
        HOST
        | GPUS
        | {
            "resources": {"rdma/hca": 8},
            "capabilities": ["IPC_LOCK"],
            "host_network": True,
            "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0,ib1"},
        },
    ),
    "kubernetes-rocm": ("rocm", HOST | GPUS | {"spread": False, "pull": "never"}),
    "kubernetes-npu": ("npu", CLAIM | {"nodes": 4, "devices_per_node": 8}),
    "kubernetes-jobset": (
        "cuda",
        CLAIM | GPUS | {"jobset": True, "labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
    ),
}
NEWEST_AND_OLDEST = ("1.37", "1.27")


def request(name: str) -> Request:
    device, settings = REQUESTS[name]
    return Request(
        run_id=RUN,
        number=1,
        folder=PurePosixPath("results/jobs", RUN),
        settings=resolved_kubernetes(KubernetesModel(**settings)),
        device=device,
        user="10001:10001",
        most_s=400,
    )


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_the_expected_manifest(name: str) -> None:
    path, text = GOLDENS / f"{name}.yaml", render(request(name))
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert path.read_text() == text, f"to accept it: {REWRITE}=1 python -m pytest {__file__}"


@pytest.mark.parametrize("name", REQUESTS)
def test_the_text_says_what_the_objects_are(name: str) -> None:
    assert list(yaml.safe_load_all(render(request(name)))) == manifest(request(name))


@pytest.mark.parametrize("version", NEWEST_AND_OLDEST)
@pytest.mark.parametrize("name", REQUESTS)
def test_kubernetes_own_schemas_take_a_manifest(name: str, version: str) -> None:
    for made in manifest(request(name)):
        if made["kind"] == "JobSet":
            (group,) = made["spec"]["replicatedJobs"]
            job = {"apiVersion": "batch/v1", "kind": "Job", **group["template"]}
            kubernetes_validate.validate(job, version, strict=True)
        else:
            kubernetes_validate.validate(made, version, strict=True)


def test_words_that_kubectl_would_take_for_something_else_are_quoted() -> None:
    """It reads YAML 1.1, in which ``n`` is false and ``1e3`` a number; PyYAML writes both without quotes."""
    assert 'pool: "1e3"' in render(request("kubernetes-cuda"))
    scalars = re.findall(r"^ *(?:- )?(?:\w+: )?([\w.]+)$", render(request("kubernetes-jobset")), re.M)
    assert not {s for s in scalars if re.fullmatch(r"[yn]|on|off|yes|no|[\d.]+e\d+", s, re.I)}


def test_a_run_of_one_pod_needs_no_service_and_pods_get_nothing_secret() -> None:
    assert [made["kind"] for made in manifest(request("kubernetes-plain"))] == ["Job"]
    for name in REQUESTS:
        text = render(request(name))
        assert "automountServiceAccountToken: false" in text
        assert "secretKeyRef" not in text


def test_the_names_of_pods_and_of_what_they_call_each_other_agree() -> None:
    """A pod is called JOB-INDEX; a JobSet's Job is called JOBSET-GROUP-0."""
    for name in ("kubernetes-cuda", "kubernetes-jobset"):
        made = manifest(request(name))[-1]
        own = made["metadata"]["name"]
        if made["kind"] == "JobSet":
            (group,) = made["spec"]["replicatedJobs"]
            job, spec = f"{own}-{group['name']}-0", group["template"]["spec"]
            domain = made["spec"]["network"]["subdomain"]
        else:
            job, spec = own, made["spec"]
            domain = spec["template"]["spec"]["subdomain"]
        variables = {v["name"]: v.get("value") for v in spec["template"]["spec"]["containers"][0]["env"]}
        assert variables["PACELINE_HOST"] == f"{job}-$(PACELINE_NODE).{domain}"
        assert len(f"{job}-1023-abcde") <= 63


@given(st.text(min_size=1, max_size=90), st.integers(20, 63))
def test_names_are_dns_labels(text: str, limit: int) -> None:
    made = dns_label(text, limit)
    assert DNS_LABEL.fullmatch(made)
    assert len(made) <= limit
    assert dns_label(made, limit) == made


def test_names_that_differ_stay_different_when_they_are_shortened() -> None:
    long = "paceline-" + "x" * 60
    assert dns_label(f"{long}-0", MAX_NAME) != dns_label(f"{long}-1", MAX_NAME)
    assert dns_label("a.b") != dns_label("a-b")


def test_pods_begin_when_all_are_there_and_end_when_they_are_told(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text('echo "$PACELINE_NODE of $PACELINE_NODES"\n')
    (tmp_path / "bin").mkdir()
    (sleep := tmp_path / "bin" / "sleep").write_text("#!/bin/sh\necho $1 >>slept\nexec /bin/sleep 0.05\n")
    sleep.chmod(0o755)
    slept = tmp_path / "slept"

    def pod(node: int) -> subprocess.Popen[bytes]:
        variables = {
            "PACELINE_NODE": str(node),
            "PACELINE_NODES": "2",
            "PACELINE_SESSION": "s",
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        }
        return subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT], cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL
        )

    first = pod(0)
    deadline = time.monotonic() + 60
    while not slept.exists() or len(slept.read_text().split()) < 3:  # it has looked three times
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    assert set(slept.read_text().split()) == {"1"}
    assert first.poll() is None
    assert not list(tmp_path.glob("kubernetes/s/pod-*.out"))
    second = pod(1)
    assert [first.wait(60), second.wait(60)] == [0, 0]
    printed = [(tmp_path / f"kubernetes/s/pod-{n}.out").read_text() for n in (0, 1)]
    assert printed == ["0 of 2\n", "1 of 2\n"]
    (tmp_path / "kubernetes/s/node-1").unlink()
    alone = pod(0)
    (tmp_path / "stop").touch()
    assert alone.wait(60) == 3


def test_a_job_folder_outside_of_the_volume_is_refused_with_what_helps() -> None:
    assert folder_in_volume(PurePosixPath("/shared/results/jobs/x"), "/shared") == PurePosixPath(
        "results/jobs/x"
    )
    with pytest.raises(UserError, match="not in the volume that the pods share, /shared") as caught:
        folder_in_volume(PurePosixPath("/home/me/results/jobs/x"), "/shared")
    assert "--results=/shared/results" in str(caught.value)
