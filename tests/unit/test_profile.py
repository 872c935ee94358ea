"""Runner profiles: base units, safe names, no secrets, and errors at their line and key."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.profiles.profile import RunnerProfile, load_runner, runner_schema

LEGAL = """\
runner: example
description: An example.
driver: local
network: namespaces
default_link: fast
links:
  fast: {rate: 100mbit}
  far: {delay: 5ms}
env:
  OMP_NUM_THREADS: "1"
limits:
  launch_seconds: 90s
  rank_memory: 2GiB
"""


def load(folder: Path, *changes: tuple[str, str]) -> RunnerProfile:
    text = LEGAL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "example.yaml"
    path.write_text(text)
    return load_runner(path)


def test_everything_is_resolved_to_base_units(tmp_path: Path) -> None:
    settings = load(tmp_path).resolved()
    assert settings["links"]["fast"] == {"name": "fast", "rate_bytes_per_s": 12.5e6, "delay_s": 0.0}
    assert settings["links"]["far"] == {"name": "far", "rate_bytes_per_s": None, "delay_s": 0.005}
    assert settings["limits"] == {"launch_s": 90.0, "rank_memory_bytes": 2 << 30, "run_s": None}
    assert load(tmp_path).link("slow") is None


@pytest.mark.parametrize(
    ("change", "scheduling"),
    [
        (("driver: local", "driver: local"), "batch"),
        (("driver: local", "driver: local\ndevice: cuda"), "normal"),
        (("driver: local", "driver: local\nscheduling: normal"), "normal"),
        (("driver: local\nnetwork: namespaces", "driver: debug"), "normal"),
    ],
    ids=["processes on a CPU", "accelerators", "as it says", "threads"],
)
def test_groups_on_a_cpu_are_scheduled_in_batch(
    change: tuple[str, str], scheduling: str, tmp_path: Path
) -> None:
    changes = [change]
    if "debug" in change[1]:
        changes += [("  fast: {rate: 100mbit}\n  far: {delay: 5ms}", "  fast: {}")]
    assert load(tmp_path, *changes).resolved()["scheduling"] == scheduling


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("description:", "descripton:", "2:descripton", "unknown key 'descripton'"),
        ("driver: local", "driver: lokal", "3:driver", "'lokal' is not valid"),
        ("runner: example", "runner: ../example", "1:runner", "is not a runner name"),
        ("  far:", "  ../../far:", "8:links.../../far", "'../../far' is not a link name"),
        ("rate: 100mbit", "rate: 100MB", "7:links.fast.rate", "unknown unit 'MB'"),
        ("delay: 5ms", "delay: -1", "8:links.far.delay", "must be non-negative"),
        ("rank_memory: 2GiB", "rank_memory: 2 gb", "13:limits.rank_memory", "unknown unit 'gb'"),
        (
            "driver: local\nnetwork: namespaces",
            "driver: debug\nscheduling: batch",
            "4:scheduling",
            "ranks of the driver 'debug' are threads",
        ),
        ("default_link: fast", "default_link: fats", "5:default_link", "'fats' is not among the links"),
        ("network: namespaces", "network: host", "7:links.fast", "share the host's network"),
        ("OMP_NUM_THREADS:", "HF_TOKEN:", "10:env.HF_TOKEN", "looks like a secret"),
        ("driver: local", "driver: local\nmax_ranks: 0", "4:max_ranks", "greater than or equal to 1"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, place: str, said: str
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, (old, new))
    errors = getattr(caught.value, "errors", (caught.value,))
    assert [(e.where, said in e.what) for e in errors if said in e.what] == [
        (f"{tmp_path / 'example.yaml'}:{place}", True)
    ], str(caught.value)


@pytest.mark.parametrize("path", [pytest.param(p, id=n) for n, p in content.runner_files().items()])
def test_the_json_schema_accepts_every_shipped_runner(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), runner_schema(), jsonschema.Draft202012Validator)
    assert load_runner(path).name == path.stem


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("description:", "descripton:"),
        ("driver: local", "driver: lokal"),
        ("{rate: 100mbit}", "[1]"),
        ('"1"', "{a: 1}"),
    ],
)
def test_the_json_schema_rejects_what_the_grammar_rejects(old: str, new: str) -> None:
    assert old in LEGAL
    jsonschema.validate(yaml.safe_load(LEGAL), runner_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(LEGAL.replace(old, new, 1)), runner_schema())


SLURM = """\
runner: example
description: An example.
driver: slurm
max_ranks: 8
slurm:
  nodes: 2
  time_limit: 90min
  memory_per_node: 4GiB
  container: {engine: pyxis, image: "registry.example/p@sha256:%s"}
""" % ("ab" * 32)


def load_slurm(folder: Path, *changes: tuple[str, str]) -> RunnerProfile:
    text = SLURM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "example.yaml"
    path.write_text(text)
    return load_runner(path)


def test_what_is_asked_of_slurm_is_resolved_too(tmp_path: Path) -> None:
    resolved = load_slurm(tmp_path).resolved()
    assert resolved["nodes"] == 2
    asked = resolved["slurm"]
    assert (asked["time_limit_s"], asked["memory_per_node_bytes"]) == (5400, 4 << 30)
    assert (asked["poll_s"], asked["unreachable_s"], asked["requeue"]) == (5, 600, False)
    assert "slurm" not in load(tmp_path).resolved()


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("driver: slurm", "driver: local", "5:slurm", "there is a section 'slurm'"),
        ("slurm:\n", "hosts: {names: [a]}\nslurm:\n", "5:hosts", "there is a section 'hosts'"),
        ("driver: slurm", "driver: hosts", "5:slurm", "there is a section 'slurm'"),
        ("max_ranks: 8", "network: namespaces", "4:network", "one host only"),
        ("nodes: 2", "nodes: 0", "6:slurm.nodes", "greater than or equal to 1"),
        ("nodes: 2", "nods: 2", "6:slurm.nods", "nods"),
        ("90min", "90x", "7:slurm.time_limit", "unknown unit"),
        ("4GiB", "4GX", "8:slurm.memory_per_node", "unknown unit"),
        ("nodes: 2", 'setup: ["a\\nb"]', "6:slurm.setup", "one line"),
        ("nodes: 2", "setup: [export HF_TOKEN=x]", "6:slurm.setup", "looks like a secret"),
        ("@sha256:", ":", "9:slurm.container.image", "is not pinned"),
        (
            "nodes: 2",
            "array_tasks: 4",
            "6:slurm.array_tasks",
            "4 tasks may run at the same time and share nodes",
        ),
        (
            "nodes: 2",
            "array_tasks: 8\n  array_at_once: 2",
            "7:slurm.array_at_once",
            "expected exclusive: true, or array_at_once: 1",
        ),
        (
            "nodes: 2",
            'array_tasks: 4\n  options: ["--exclusive=user"]',
            "6:slurm.array_tasks",
            "4 tasks may run at the same time",
        ),
        ("nodes: 2", "options: [--oversubscribe]", "6:slurm.options", "lets others compute on the nodes"),
    ],
)
def test_a_mistake_in_a_cluster_is_named_with_its_key(
    tmp_path: Path, old: str, new: str, place: str, said: str
) -> None:
    with pytest.raises(UserError) as caught:
        load_slurm(tmp_path, (old, new))
    errors = getattr(caught.value, "errors", (caught.value,))
    assert [(e.where, said in e.what) for e in errors if said in e.what] == [
        (f"{tmp_path / 'example.yaml'}:{place}", True)
    ], str(caught.value)


def test_a_driver_of_several_nodes_needs_its_section(tmp_path: Path) -> None:
    for driver in ("slurm", "hosts", "kubernetes"):
        with pytest.raises(UserError, match="without its section"):
            load(tmp_path, ("driver: local", f"driver: {driver}"), ("network: namespaces", "network: host"))


def test_a_command_that_names_no_host_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(
        "runner: example\ndescription: x\ndriver: hosts\nhosts: {names: [a, b], connect: [ssh, a]}\n"
    )
    with pytest.raises(UserError, match="never names the host"):
        load_runner(path)


@pytest.mark.parametrize(
    "change",
    [
        "array_tasks: 4\n  exclusive: true",
        "array_tasks: 4\n  options: [--exclusive]",
        "array_tasks: 4\n  array_at_once: 1",
        "array_tasks: 1\n  array_at_once: 3",
    ],
)
def test_tasks_of_an_array_that_cannot_meet_on_a_node_are_legal(tmp_path: Path, change: str) -> None:
    assert load_slurm(tmp_path, ("nodes: 2", change)).model.slurm is not None


KUBERNETES = """runner: example
description: x
driver: kubernetes
device: cuda
kubernetes:
  image: registry.example/p@sha256:{digest}
  volume: {{claim: results, root: /mnt/results}}
  nodes: 2
  devices_per_node: 8
  memory_per_node: 4GiB
  pending_seconds: 10min
""".format(digest="0" * 64)


def load_kubernetes(folder: Path, *changes: tuple[str, str]) -> RunnerProfile:
    text = KUBERNETES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "example.yaml"
    path.write_text(text)
    return load_runner(path)


def test_what_is_asked_of_kubernetes_is_resolved_too(tmp_path: Path) -> None:
    resolved = load_kubernetes(tmp_path).resolved()
    asked = resolved["kubernetes"]
    assert resolved["nodes"] == 2
    assert (asked["memory_per_node_bytes"], asked["pending_s"], asked["poll_s"]) == (4 << 30, 600.0, 2.0)
    assert (asked["time_limit_s"], asked["shm_bytes"]) == (None, 1 << 30)
    assert asked["volume"] == {"claim": "results", "host_path": None, "root": "/mnt/results"}
    of_host = load_kubernetes(tmp_path, ("{claim: results, root: /mnt/results}", "{host_path: /shared}"))
    assert of_host.resolved()["kubernetes"]["volume"]["root"] == "/shared"


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("@sha256:", ":", "6:kubernetes.image", "is not pinned"),
        ("{claim: results, ", "{", "7:kubernetes.volume", "a claim or a host_path"),
        (", root: /mnt/results", "", "7:kubernetes.volume", "a claim needs root"),
        ("/mnt/results", "results", "7:kubernetes.volume.root", "no absolute path"),
        ("claim: results", "claim: My_Claim", "7:kubernetes.volume.claim", "no DNS name"),
        ("  devices_per_node: 8\n", "", "5:kubernetes", "give devices_per_node"),
        ("device: cuda", "device: cpu", "9:kubernetes.devices_per_node", "which needs none"),
        ("4GiB", "4GX", "10:kubernetes.memory_per_node", "unknown unit"),
        ("10min", "10x", "11:kubernetes.pending_seconds", "unknown unit"),
        ("nodes: 2", "namespace: My_Team", "8:kubernetes.namespace", "no DNS label"),
        ("nodes: 2", "service_account: A_B", "8:kubernetes.service_account", "no DNS name"),
        ("nodes: 2", "labels: {paceline.io/run: x}", "8:kubernetes.labels", "the driver's own"),
        ("nodes: 2", "labels: {a: b c}", "8:kubernetes.labels", "no value of a label"),
        ("nodes: 2", "node_selector: {a b: c}", "8:kubernetes.node_selector", "no qualified name"),
        ("nodes: 2", "resources: {rdma/hca: many}", "8:kubernetes.resources", "no quantity"),
        (
            "nodes: 2",
            "annotations: {x.example/token: abc}",
            "8:kubernetes.annotations",
            "looks like a secret",
        ),
        ("nodes: 2", "kubectl: [kubectl, --token=abc]", "8:kubernetes.kubectl", "looks like a secret"),
        ("nodes: 2", "user: root", "8:kubernetes.user", "is not two numbers"),
        ("driver: kubernetes", "driver: local", "5:kubernetes", "there is a section 'kubernetes'"),
        ("device: cuda", "network: namespaces", "4:network", "containers may not make namespaces"),
    ],
)
def test_a_wrong_kubernetes_section_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, place: str, said: str
) -> None:
    with pytest.raises(UserError) as caught:
        load_kubernetes(tmp_path, (old, new))
    errors = getattr(caught.value, "errors", (caught.value,))
    assert [(e.where, said in e.what) for e in errors] == [(f"{tmp_path / 'example.yaml'}:{place}", True)], (
        str(caught.value)
    )
