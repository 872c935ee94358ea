"""Requests to a Docker Engine, word for word, for every kind of device; what its answers mean; what is in an image."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from paceline.base.errors import UserError
from paceline.base.files.events import MOST_BYTES, read_events
from paceline.drivers.docker.devices import WAYS, Wanted, choose_way, wanted_devices
from paceline.drivers.docker.request import (
    READ_ONLY,
    Request,
    closed_limits,
    container_body,
    network_options,
    survey_body,
)
from paceline.drivers.docker.sbom import bill_of_materials, dpkg_packages
from paceline.drivers.docker.states import REASONS, ending, refusal
from paceline.spec.profiles.container import DockerModel, resolved_docker
from paceline.spec.profiles.profile import in_image, load_runner

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "goldens"
REWRITE = "PACELINE_WRITE_GOLDENS"
IMAGE_ID = "sha256:" + "0123456789abcdef" * 4
NOTHING: dict[str, Any] = {}
CDI_ENGINE = {
    "DiscoveredDevices": [
        {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
        {"Source": "cdi", "ID": "amd.com/gpu=all"},
    ]
}
REQUESTS: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "docker-cpu": ("cpu", 1, {"cpuset": "0-3", "mounts": ["/data:/data"]}, NOTHING),
    "docker-cpu-ranks": ("cpu", 2, {"containers": "one-a-rank"}, NOTHING),
    "docker-nvidia-all": ("cuda", 1, {}, NOTHING),
    "docker-nvidia-count": ("cuda", 1, {"devices": {"count": 2}}, NOTHING),
    "docker-nvidia-ids": ("cuda", 1, {"devices": {"ids": [1, "GPU-3a"]}}, NOTHING),
    "docker-nvidia-ranks": ("cuda", 2, {"containers": "one-a-rank", "devices": {"count": 2}}, NOTHING),
    "docker-cdi-nvidia": ("cuda", 1, {"devices": {"ids": [0, 1]}}, CDI_ENGINE),
    "docker-cdi-amd": ("rocm", 1, {}, CDI_ENGINE),
    "docker-rocm": ("rocm", 1, {}, NOTHING),
    "docker-rocm-ids": ("rocm", 1, {"devices": {"ids": [0, 3]}}, NOTHING),
    "docker-ascend-runtime": ("npu", 1, {"devices": {"count": 2}}, {"Runtimes": {"ascend": {}}}),
    "docker-ascend-files": ("npu", 1, {"devices": {"ids": [4, 5]}}, NOTHING),
}
"""Device, containers, settings of the profile, and what the engine says of itself."""


def request(name: str) -> Request:
    device, count, changes, engine = REQUESTS[name]
    settings = resolved_docker(DockerModel(image="paceline/x:local", **changes))
    wanted = wanted_devices(device, settings["devices"], groups=[44, 109])
    way = (settings["devices"] or {}).get("way", "auto")
    return Request(
        run_id="0190",
        job=PurePosixPath("/results/jobs/0190"),
        image_id=IMAGE_ID,
        settings=closed_limits(settings, count, most_s=400.0, cores=8, memory_bytes=64 << 30),
        read_only=READ_ONLY,
        user="10001:10001",
        controller="0a:17:99",
        num_containers=count,
        session="5e55",
        wanted=wanted,
        way=choose_way(wanted, way, engine) if wanted else None,
    )


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_request_is_word_for_word_what_was_agreed(name: str) -> None:
    """PACELINE_WRITE_GOLDENS=1 writes them anew."""
    made = request(name)
    bodies = [container_body(made, node) for node in range(made.num_containers)]
    text = json.dumps({"network": network_options(made), "containers": bodies}, indent=1) + "\n"
    path = GOLDENS / f"{name}.json"
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert path.is_file(), f"no golden; look at the request, then {REWRITE}=1"
    assert text == path.read_text()


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_no_request_opens_the_fence(name: str) -> None:
    made = request(name)
    for body in (*(container_body(made, n) for n in range(made.num_containers)), survey_body(made)):
        host = body["HostConfig"]
        assert body["User"] == "10001:10001"
        assert host["CapDrop"] == ["ALL"] and "CapAdd" not in host
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["ReadonlyRootfs"] is True and host["Privileged"] is False
        assert host["NetworkMode"] in ("none", "paceline-0190")
        assert host["PidsLimit"] == 512 and 0 < host["Memory"] == host["MemorySwap"] and host["NanoCpus"] > 0
        assert [m["Target"] for m in host.get("Mounts", ()) if not m["ReadOnly"]] in ([], ["/job"])
        assert body["Labels"] == {"io.paceline.run": "0190", "io.paceline.controller": "0a:17:99"}
        assert body["Image"] == IMAGE_ID
    network = network_options(made)
    assert (network is None) == (made.num_containers == 1)
    assert network is None or network["internal"] is True


def test_the_engine_is_asked_by_cdi_where_it_knows_the_device_and_by_the_vendors_way_elsewhere() -> None:
    nvidia, amd = wanted_devices("cuda", None), wanted_devices("rocm", None)
    npu = wanted_devices("npu", {"count": 1})
    assert nvidia and amd and npu
    assert [choose_way(w, "auto", CDI_ENGINE) for w in (nvidia, amd, npu)] == ["cdi", "cdi", "files"]
    assert [choose_way(w, "auto", NOTHING) for w in (nvidia, amd, npu)] == ["request", "files", "files"]
    assert choose_way(nvidia, "cdi", NOTHING) == "cdi"
    assert {way for ways in WAYS.values() for way in ways} == {"cdi", "request", "runtime", "files"}
    assert wanted_devices("cpu", None) is None


def test_a_way_that_a_device_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="not given by way 'request'"):
        choose_way(Wanted(device="rocm"), "request", NOTHING)
    with pytest.raises(UserError, match="CDI needs a kind"):
        choose_way(Wanted(device="npu"), "cdi", NOTHING)


def test_limits_that_a_profile_leaves_open_are_closed_and_those_that_it_gives_stay() -> None:
    open_ones = resolved_docker(DockerModel(image="x"))
    closed = closed_limits(open_ones, 2, most_s=400.0, cores=8, memory_bytes=64 << 30)
    assert (closed["memory_bytes"], closed["cpus"], closed["time_limit_s"]) == (24 << 30, 8.0, 800.0)
    assert closed_limits(open_ones, 1, most_s=1.0, cores=8, memory_bytes=8)["time_limit_s"] == 600.0
    given = resolved_docker(DockerModel(image="x", memory="1GiB", cpus=0.5, time_limit="2s"))
    closed = closed_limits(given, 2, most_s=400.0, cores=8, memory_bytes=64 << 30)
    assert (closed["memory_bytes"], closed["cpus"], closed["time_limit_s"]) == (1 << 30, 0.5, 2.0)


@pytest.mark.parametrize(
    ("state", "away", "code"),
    [
        ({"ExitCode": 0}, False, None),
        ({"ExitCode": 0}, True, None),
        ({"ExitCode": 3}, False, None),
        ({"ExitCode": 3}, True, "ENGINE_RESTARTED"),
        ({"ExitCode": 137, "OOMKilled": True}, False, "OUT_OF_MEMORY"),
        ({"ExitCode": 1, "OOMKilled": True}, False, None),
        ({"ExitCode": 137, "OOMKilled": False}, False, "KILLED"),
        ({"ExitCode": 143}, False, "KILLED"),
        (None, False, "LOST"),
        (None, True, "ENGINE_RESTARTED"),
    ],
)
def test_an_ending_has_a_code_where_it_is_not_the_launchers_own(
    state: dict[str, Any] | None, away: bool, code: str | None
) -> None:
    assert ending(state, engine_was_away=away) == code
    assert code is None or REASONS[code]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('could not select device driver "nvidia" with capabilities: [[gpu compute utility]]', "NO_DEVICE"),
        ('could not select device driver "cdi" with capabilities: []', "NO_DEVICE"),
        (
            'error gathering device information while adding custom device "/dev/kfd": no such file',
            "NO_DEVICE",
        ),
        ("Unknown runtime specified ascend", "NO_DEVICE"),
        ("exec /bin/sh: exec format error", "WRONG_ARCHITECTURE"),
        ("pull access denied for x", "IMAGE_MISSING"),
        ('exec: "python3": executable file not found in $PATH', "IMAGE_UNFIT"),
        ("permission denied", "PERMISSION_DENIED"),
        ("something new", "REFUSED"),
    ],
)
def test_what_an_engine_refuses_has_a_code(words: str, code: str) -> None:
    assert refusal(words)[0] == code


STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 with: colons
 in: its text

Package: gone
Status: deinstall ok config-files
Version: 1

Package: distroless
Version: 1:2~3
"""


def test_a_bill_of_materials_names_what_is_installed_and_is_the_same_every_time() -> None:
    assert list(dpkg_packages(STATUS)) == [
        ("libc6", "2.36-9+deb12u10", "amd64"),
        ("distroless", "1:2~3", "all"),
    ]
    survey = {
        "os": 'ID=debian\nPRETTY_NAME="Debian 12"\n',
        "python": "3.11.2",
        "dpkg": STATUS,
        "pypi": [["torch", "2.13.0+cpu"], ["typing_extensions", "4.16.0"]],
    }
    text = bill_of_materials("paceline/cpu:local", IMAGE_ID, survey)
    assert text == bill_of_materials("paceline/cpu:local", IMAGE_ID, {**survey, "pypi": survey["pypi"][::-1]})
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        "1.5",
        IMAGE_ID,
    )
    assert [c["purl"] for c in bill["components"]] == [
        "pkg:deb/debian/distroless@1%3A2~3?arch=all",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64",
        "pkg:pypi/torch@2.13.0%2Bcpu",
        "pkg:pypi/typing-extensions@4.16.0",
    ]
    without = json.loads(bill_of_materials("x", IMAGE_ID, {**survey, "dpkg": ""}))
    said = {p["name"]: p["value"] for p in without["metadata"]["properties"]}
    assert said["io.paceline:system-packages"].startswith("absent: ")


PROFILE = """\
runner: example
description: An example.
driver: docker
device: cuda
max_ranks: 2
docker:
  image: paceline/cuda:local
  memory: 8GiB
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("driver: docker", "driver: local", "docker", "there is a section 'docker'"),
        ("max_ranks: 2", "network: namespaces", "network", "containers may not make namespaces"),
        ("paceline/cuda:local", "Not An Image", "docker.image", "names no image"),
        ("8GiB", "8GX", "docker.memory", "unknown unit"),
        ("memory: 8GiB", "user: '0:0'", "docker.user", "not two numbers above 0"),
        ("memory: 8GiB", "user: root", "docker.user", "not two numbers above 0"),
        ("memory: 8GiB", "mounts: [relative:/x]", "docker.mounts", "not HOST:INSIDE"),
        ("memory: 8GiB", "devices: {ids: [0], count: 1}", "docker.devices", "not both"),
        ("memory: 8GiB", "devices: {kind: nvidia}", "docker.devices.kind", "not VENDOR/CLASS"),
        (
            "memory: 8GiB",
            "containers: one-a-rank",
            "docker.devices",
            "every rank's container gets one device",
        ),
        ("device: cuda", "device: npu", "docker.devices", "NPUs are given to containers by number"),
        ("device: cuda", "device: cpu\nbackend: gloo", "docker.devices", "needs none"),
        ("memory: 8GiB", "privileged: true", "docker.privileged", "unknown key 'privileged'"),
    ],
)
def test_a_mistake_in_a_section_docker_is_named_with_its_key(
    tmp_path: Path, old: str, new: str, place: str, said: str
) -> None:
    text = PROFILE if "needs none" not in said else PROFILE + "  devices: {count: 1}\n"
    path = tmp_path / "example.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load_runner(path)
    errors = getattr(caught.value, "errors", (caught.value,))
    assert any(str(e.where).endswith(f":{place}") and said in e.what for e in errors), str(caught.value)


def test_the_shipped_profiles_name_images_that_this_checkout_builds() -> None:
    paths = sorted((ROOT / "runners").glob("docker-*.yaml"))
    assert len(paths) >= 5
    for path in paths:
        image = yaml.safe_load(path.read_text())["docker"]["image"]
        device = image.removeprefix("paceline/").removesuffix(":local")
        assert (ROOT / "containers" / f"{device}.Dockerfile").is_file(), path


def test_a_record_is_measured_again_in_its_own_image() -> None:
    profile = load_runner(ROOT / "runners" / "docker-cpu.yaml")
    pinned = in_image(profile, IMAGE_ID).resolved()
    assert (pinned["docker"]["image"], pinned["docker"]["pull"]) == (IMAGE_ID, "never")
    assert {**pinned, "docker": None} == {**profile.resolved(), "docker": None}


def test_events_are_read_from_plain_files_only_and_not_without_end(tmp_path: Path) -> None:
    """What writes them may be hostile."""
    (tmp_path / "secret").write_text('{"event": "result"}\n')
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MOST_BYTES + 2)
    for name in ("link", "pipe", "huge"):
        events, offset = read_events(tmp_path / name)
        assert [e["event"] for e in events] == ["unreadable"], name
        assert offset == (MOST_BYTES + 2 if name == "huge" else 0)
    assert read_events(tmp_path / "huge", MOST_BYTES + 2) == ([], MOST_BYTES + 2)
    assert read_events(tmp_path / "secret")[0] == [{"event": "result"}]
