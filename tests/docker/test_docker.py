"""Runs in containers of a real Docker Engine: results, fences seen from inside, and every way of ending badly."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import paceline_commands
import psutil
import pytest
from docker_runs import ROOT, MakeScript, Runs
from dockerd import Engine

from paceline.base.errors import InfrastructureError
from paceline.drivers.machine.engine import open_engine
from paceline.records.format.record_file import lines_of
from paceline.records.store.folder import record_paths

pytestmark = pytest.mark.docker
FAILING = Path(__file__).parent / "failing"
"""Techniques that fail on rank 1."""
SLOW = Path(__file__).parents[1] / "distributed" / "faulty"
"""A suite that lasts long enough to be interrupted."""
USER = 10001
POINT = ["collectives/all-reduce", "--tier", "quick", "--launches", "1", "--techniques", "native,ring"]
ROOM = 10.0
"""How far the best of many samples may be apart inside and outside a container. The scheduler treats a container as one
among all other work, and small messages on a loopback have two modes: a smaller room would test the machine."""


def best(measured: list[dict[str, Any]], label: str) -> float:
    """Return the shortest latency of a technique."""
    found = [m for m in measured if m["label"] == label and m["metric"]["name"] == "latency"]
    return min(min(m["samples"]) for m in found)


def counts(measured: list[dict[str, Any]]) -> set[tuple[str, str, float]]:
    """Return what was counted and not timed."""
    names = ("wire_bytes", "messages")
    return {(m["label"], m["metric"]["name"], m["value"]) for m in measured if m["metric"]["name"] in names}


def processes_of(container: str) -> list[int]:
    """Return this host's processes that belong to a container."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if container in path.read_text():
                found.append(int(path.parent.name))
    return found


def test_ranks_in_one_container_measure_what_ranks_outside_measure_and_the_record_says_in_what(
    runs: Runs,
) -> None:
    small = [*POINT, "--launches", "2", "--filter", "size_bytes=4KiB"]
    inside, outside = runs(*small), runs(*small, runner="local-cpu")
    assert (inside.code, outside.code) == (0, 0), inside.output + outside.output
    assert {m["status"] for m in inside.measured()} == {"ok"}
    assert counts(inside.measured()) == counts(outside.measured()) != set()
    for label in ("native", "ring"):
        ratio = best(inside.measured(), label) / best(outside.measured(), label)
        assert 1 / ROOM < ratio < ROOM, label
    run = inside.lines()[0]
    container = run["container"]
    assert container["image_id"].startswith("sha256:")
    assert container["image_class"] == "cpu"
    assert (container["network"], container["user"], container["containers"]) == ("none", "10001:10001", 1)
    assert all(
        container["limits"][name] for name in ("memory_bytes", "cpus", "pids", "time_limit_s", "job_bytes")
    )
    assert container["image_id"] in run["request"]
    assert str(inside.results) not in run["request"]
    (path,) = inside.results.glob(f"20*/*/{container['sbom']}")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == container["sbom_sha256"]
    names = {c["name"]: c["purl"] for c in json.loads(path.read_text())["components"]}
    assert names["torch"].startswith("pkg:pypi/torch@2.")
    assert names["libc6"].startswith("pkg:deb/debian/libc6@")


def test_a_container_for_each_rank_measures_on_a_network_whose_bytes_are_the_ranks_own(runs: Runs) -> None:
    done = runs(*POINT, runner="docker-cpu-ranks")
    assert done.code == 0, done.output
    measured = done.measured()
    assert {m["status"] for m in measured} == {"ok"}
    assert {(m["scale"]["nodes"], m["scale"]["ranks"], m["params"]["link"]) for m in measured} == {
        (1, 2, "bridge")
    }
    counted = [m for m in measured if m["metric"]["name"] == "kernel_bytes" and m["label"] == "ring"]
    assert len(counted) == 2, "the kernel's counters of every rank's own interface"
    container = done.lines()[0]["container"]
    assert (container["network"], container["containers"]) == ("internal", 2)


def test_ranks_that_die_hang_or_take_all_memory_in_a_container_cost_their_own_case(runs: Runs) -> None:
    done = runs("collectives/failing", content=FAILING, memory="1GiB")
    assert done.code == 3, done.output
    found = {m["label"]: (m["status"], m.get("reason", "")) for m in done.measured()}
    assert {label: status for label, (status, _) in found.items()} == {
        "native": "ok",
        "dies": "crashed",
        "hangs": "timeout",
        "touches-memory": "out_of_memory",
    }
    assert "rank 1 was killed by signal 9 (SIGKILL); last operation: " in found["dies"][1]
    assert "killed by signal 9 (SIGKILL) for lack of memory" in found["touches-memory"][1]


def test_a_disk_that_fills_up_under_a_container_keeps_what_was_measured(
    mounted: Any, engine: Engine, runs: Runs, tmp_path: Path
) -> None:
    with mounted(tmp_path / "filling", "size=24m") as store:
        process, _ = runs.start(*POINT, results=store)
        while not any('"event":"result"' in p.read_text() for p in store.glob("jobs/*/events-*.jsonl")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        with (store / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 3, output
        assert "the disk is full; everything measured so far is kept" in output
        assert engine.ours() == []


def test_what_is_in_a_container_is_nobody_and_reaches_nothing(script: MakeScript, tmp_path: Path) -> None:
    """Looked at from inside, with a server of the host that would answer on every address."""
    (tmp_path / "host-secret").write_text("of the host")
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        program = f"""
import json, os, pathlib, socket
def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
places = ["/x", "/usr/x", "/etc/x"]
places += ["/job/" + name for name in ("engine/x", "engine/engine.py", "plan.json", "events-container.jsonl")]
addresses = ("127.0.0.1", "{own_address()}", "8.8.8.8")
found = {{
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "capabilities": [status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"], "seccomp": status["Seccomp"],
    "interfaces": [name for _, name in socket.if_nameindex()],
    "connect": [attempt(lambda a=a: socket.create_connection((a, {port}), 1)) for a in addresses],
    "written": {{p: attempt(lambda p=p: open(p, "a")) for p in places}},
    "renamed": attempt(lambda: os.rename("/job/plan.json", "/job/other.json")),
    "root": attempt(lambda: os.setuid(0)),
    "mount": os.path.exists("{tmp_path}"),
    "devices": sorted(os.listdir("/dev")),
    "sockets": [p for p in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(p)],
}}
json.dump(found, open("found.json", "w"))
"""
        one = script(program)
        assert one.end() == 0, one.execution and one.execution.log()
    found = one.found()
    assert (found["uid"], found["gid"], set(found["groups"]) - {USER}) == (USER, USER, set())
    assert {int(c, 16) for c in found["capabilities"]} == {0}
    assert (found["no_new_privileges"], found["seccomp"]) == ("1", "2")
    assert found["interfaces"] == ["lo"]
    assert set(found["connect"]) <= {"ConnectionRefusedError", "OSError", "TimeoutError"}
    assert set(found["written"].values()) <= {"OSError", "PermissionError"}, found["written"]
    assert found["renamed"] == "OSError"
    assert found["root"] == "PermissionError"
    assert not found["mount"]
    assert not found["sockets"]
    assert not {name for name in found["devices"] if name.startswith(("vd", "sd", "nvme", "kvm", "mem"))}


def own_address() -> str:
    """Return an address of this host that is no loopback."""
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                return address.address
    return "127.0.0.1"


def test_containers_of_a_run_reach_each_other_and_neither_the_host_nor_other_runs(script: MakeScript) -> None:
    program = """
import json, os, pathlib, socket, threading, time
node = int(os.environ["PACELINE_NODE"])
def attempt(address, port):
    try:
        socket.create_connection((address, port), 1).close()
        return "reached"
    except OSError as error:
        return type(error).__name__
pathlib.Path(".address").mkdir(exist_ok=True)
pathlib.Path(f".address/{node}").write_text(socket.gethostbyname(f"rank-{node}"))
os.rename(f".address/{node}", f"address-{node}")
server = socket.create_server(("", 4000))
threading.Thread(target=lambda: [server.accept() for _ in range(9)], daemon=True).start()
while not all(pathlib.Path(n).exists() for n in ("host.json", f"address-{1 - node}")):
    time.sleep(0.05)
host = json.load(open("host.json"))
own = socket.gethostbyname(f"rank-{node}").rsplit(".", 1)[0]
found = {"peer": attempt(f"rank-{1 - node}", 4000),
         "host": [attempt(a, host["port"]) for a in (f"{own}.1", host["address"])],
         "other run": attempt(host["stranger"], 4000),
         "name": attempt("host.docker.internal", host["port"])}
json.dump(found, open(f"found-{node}.json", "w"))
pathlib.Path(f"done-{node}").touch()
while not pathlib.Path(f"done-{1 - node}").exists():
    time.sleep(0.05)
"""
    one, other = (
        script(program, ranks=2, containers="one-a-rank"),
        script(program, ranks=2, containers="one-a-rank"),
    )
    with socket.create_server(("", 0)) as server:
        for run in (one, other):
            run.start()
        for run, stranger in ((one, other), (other, one)):
            while not (stranger.job / "address-0").exists():
                time.sleep(0.05)
            stranger_address = (stranger.job / "address-0").read_text()
            host = {"port": server.getsockname()[1], "address": own_address(), "stranger": stranger_address}
            (run.job / ".host").write_text(json.dumps(host))
            (run.job / ".host").rename(run.job / "host.json")
        assert [one.end(), other.end()] == [0, 0]
    for run in (one, other):
        for node in (0, 1):
            found = run.found(f"found-{node}.json")
            assert found["peer"] == "reached"
            assert "reached" not in [*found["host"], found["name"], found["other run"]]


def test_a_fork_bomb_stays_below_its_limit_and_ends_with_its_container(
    script: MakeScript, engine: Engine
) -> None:
    bomb = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""
    one = script(bomb, pids=64, time_limit=4, cpus=0.5)
    one.start()
    (container,) = (c["Id"] for c in engine.client().containers())
    most, deadline = 0, time.monotonic() + 30
    while one.execution is not None and one.execution.poll() is None and time.monotonic() < deadline:
        most = max(most, len(processes_of(container)))
        time.sleep(0.1)
    one.end()
    assert 16 < most <= 64
    assert one.reasons()[0].startswith("TIMEOUT: the run reached its time limit (4 s)")
    assert processes_of(container) == []


def test_filling_tmp_fills_the_container_only(script: MakeScript) -> None:
    filling = """
import errno, json
written = 0
try:
    with open("/tmp/big", "wb", buffering=0) as file:
        while True:
            written += file.write(b"x" * 65536)
except OSError as error:
    json.dump({"written": written, "why": errno.errorcode[error.errno]}, open("found.json", "w"))
"""
    before = os.statvfs("/tmp").f_bavail
    one = script(filling, tmp_size="8MiB")
    assert one.end() == 0
    assert one.found() == {"written": 8 << 20, "why": "ENOSPC"}
    assert abs(os.statvfs("/tmp").f_bavail - before) * os.statvfs("/tmp").f_frsize < 1 << 30


def test_a_run_that_writes_too_much_into_its_folder_is_ended(script: MakeScript) -> None:
    many = """
import time
for number in range(100000):
    with open(f"file-{number}", "wb") as file:
        file.write(b"x" * 500_000)
    time.sleep(0.01)
"""
    one = script(many, job_size="10MiB")
    assert one.end() == 0
    assert one.reasons()[0].startswith("JOB_SIZE: the run wrote more into its job folder than it may (")
    assert sum(p.stat().st_size for p in one.job.glob("file-*")) < 1 << 30


def test_long_output_is_read_and_only_its_beginning_and_end_are_kept(
    script: MakeScript, engine: Engine
) -> None:
    one = script("import sys\nfor _ in range(640):\n    sys.stdout.write('x' * 65536)\nprint('the end')\n")
    assert one.end() == 0
    assert one.execution is not None
    assert one.execution.log().endswith("xxthe end")
    assert (one.job / "launcher-0.log").stat().st_size < 5 << 20
    assert not list((engine.folder / "data" / "containers").rglob("*-json.log"))


def test_what_a_container_leaves_in_its_folder_leads_nowhere(script: MakeScript, tmp_path: Path) -> None:
    """Links to the host's files, a pipe that nobody writes, and an event about another container."""
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"event": "raised", "reason": "secret"}\n')
    hostile = f"""
import json, os
os.symlink("{secret}", "events-5.jsonl")
os.mkfifo("events-6.jsonl")
os.rename("artifacts", "moved")
os.symlink("/etc", "artifacts")
"""
    one = script(hostile)
    assert one.end() == 0
    from paceline.drivers.execute import EventTail

    events = EventTail(one.job).read()
    assert "secret" not in json.dumps(events)
    assert sorted(e["text"] for e in events if e["event"] == "unreadable") == [
        "events-5.jsonl: Too many levels of symbolic links",
        "events-6.jsonl: not a plain file",
    ]
    assert (one.job / "artifacts").is_symlink()


def test_a_run_that_hangs_reaches_its_time_limit(script: MakeScript) -> None:
    one = script("import time\ntime.sleep(600)\n", time_limit=2)
    assert one.end() == 0
    assert one.reasons() == ["TIMEOUT: the run reached its time limit (2 s)"]


def test_a_launcher_over_its_memory_is_infrastructure(script: MakeScript) -> None:
    greedy = "rows = []\nwhile True:\n    rows.append(bytearray(b'x' * (1 << 20)))\n"
    one = script(greedy, memory="64MiB")
    assert one.end() == 0
    assert one.reasons()[0].startswith("OUT_OF_MEMORY: the container went over its memory")


@pytest.mark.parametrize(("how", "code"), [("kill", "KILLED"), ("remove", "LOST")])
def test_a_container_that_somebody_ends_is_infrastructure(
    script: MakeScript, engine: Engine, how: str, code: str
) -> None:
    one = script("import time\ntime.sleep(600)\n")
    one.start()
    (container,) = engine.client().containers()
    if how == "kill":
        engine.client().kill(container["Id"])
    else:
        engine.client().remove_container(container["Id"], force=True)
    assert one.end() == 0
    assert one.reasons()[0].startswith(f"{code}: somebody ")


def test_a_launcher_that_fails_by_itself_gives_its_exit_code_and_what_it_printed(script: MakeScript) -> None:
    one = script("raise SystemExit('no room')")
    assert one.end() == 1
    assert one.reasons() == []
    assert one.execution is not None
    assert one.execution.log() == "no room"


@pytest.mark.parametrize("how", ["restarted", "crashed"])
def test_an_engine_that_goes_away_takes_its_containers_along_and_is_blamed(
    script: MakeScript, engine: Engine, how: str
) -> None:
    one = script("import time\ntime.sleep(600)\n", ranks=2, containers="one-a-rank")
    execution = one.start()
    assert execution.poll() is None
    engine.stop() if how == "restarted" else engine.kill()
    for _ in range(5):
        assert execution.poll() is None
        time.sleep(0.1)
    engine.start()
    assert one.end() == 0
    assert one.reasons()[0].startswith("ENGINE_RESTARTED: the Docker Engine went away")


def test_an_engine_that_stays_away_ends_the_run_with_what_to_do(script: MakeScript, engine: Engine) -> None:
    one = script("import time\ntime.sleep(600)\n", unreachable_seconds=1)
    one.start()
    engine.stop()
    try:
        with pytest.raises(
            InfrastructureError, match=r"ENGINE_UNREACHABLE(.|\n)*paceline run --resume test-"
        ):
            one.end()
    finally:
        engine.start()


def test_an_engine_that_is_restarted_in_the_middle_of_a_run_is_no_techniques_fault(
    runs: Runs, engine: Engine
) -> None:
    process, store = runs.start("collectives/slow", content=SLOW)
    while not any('"event":"result"' in p.read_text() for p in store.glob("jobs/*/events-*.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    engine.stop()
    engine.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 3, output
    (path,) = record_paths(store)
    lines = [json.loads(line) for line in lines_of(path)]
    failed = [m for m in lines if m["line"] == "measurement" and m["status"] != "ok"]
    assert {m["status"] for m in failed} == {"infrastructure"}
    assert all(m["reason"].startswith("ENGINE_RESTARTED: ") for m in failed)
    assert [m for m in lines if m["line"] == "measurement" and m["status"] == "ok"]


CONTROLLER = """
import sys, time
from pathlib import Path
from paceline.drivers.docker.driver import DockerDriver
execution = DockerDriver().start(Path(sys.argv[1]))
print("started", flush=True)
while True:
    execution.poll()
    time.sleep(0.1)
"""


def test_containers_end_with_their_controller_and_doctor_removes_them(
    script: MakeScript, engine: Engine
) -> None:
    one = script("import time\ntime.sleep(600)\n", ranks=2, containers="one-a-rank")
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(one.job)],
        env=engine.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert controller.stdout is not None
    assert controller.stdout.readline() == "started\n"
    clean = paceline_commands.command("doctor", "--clean")
    alive = subprocess.run(clean, env=engine.environment, capture_output=True, text=True, check=True).stdout
    assert "container" not in alive, "a run that goes on is not a leftover"
    assert len(engine.client().containers()) == 2
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    deadline = time.monotonic() + 120
    while engine.client().containers():
        assert time.monotonic() < deadline, "the containers outlive their controller"
        time.sleep(0.1)
    assert len(engine.ours()) == 3
    said = subprocess.run(clean, env=engine.environment, capture_output=True, text=True, check=True).stdout
    assert said.count("the controller that started it is gone") == 3, said
    assert engine.ours() == []


def test_an_image_that_is_not_there_is_infrastructure_and_says_how_to_get_it(runs: Runs) -> None:
    done = runs(*POINT, image="paceline/none:1")
    assert done.code == 3
    assert "IMAGE_MISSING: the engine has no image 'paceline/none:1'" in done.output
    assert "make image-base image" in done.output


def test_an_image_of_a_registry_that_cannot_be_reached_is_missing(runs: Runs) -> None:
    done = runs(*POINT, image=f"localhost:9/team/paceline@sha256:{'0' * 64}")
    assert done.code == 3
    assert "IMAGE_MISSING: 'localhost:9/team/paceline@sha256:" in done.output


def load_image(engine: Engine, name: str, architecture: str, files: dict[str, bytes]) -> None:
    """Load an image that is written by hand."""

    def tar(entries: dict[str, bytes]) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for path, data in entries.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), 0o755
                archive.addfile(entry, io.BytesIO(data))
        return made.getvalue()

    layer = tar(files)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    engine.client().load_image(tar({**{k: v.encode() for k, v in parts.items()}, "layer.tar": layer}))


FOREIGN = (
    b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0x16).to_bytes(2, "little") + bytes(44)
)
"""A program for a mainframe."""


@pytest.mark.parametrize(
    ("architecture", "program", "expected"),
    [
        (
            "s390x",
            FOREIGN,
            "WRONG_ARCHITECTURE: image 'test/foreign:1' is for linux/s390x, and this machine is linux/",
        ),
        ("", FOREIGN, "WRONG_ARCHITECTURE: the image's programs are for another machine"),
        ("", None, "IMAGE_UNFIT: "),
    ],
    ids=["by-its-label", "by-its-programs", "without-python"],
)
def test_an_image_that_cannot_run_here_is_refused_before_anything_is_measured(
    runs: Runs, engine: Engine, architecture: str, program: bytes | None, expected: str
) -> None:
    own = engine.client().version()["Arch"]
    files = {
        "etc/os-release": b"ID=debian\n",
        **({"usr/bin/python3": program, "bin/sh": program} if program else {}),
    }
    load_image(engine, "test/foreign:1", architecture or own, files)
    done = runs(*POINT, image="test/foreign:1")
    assert done.code == 3, done.output
    assert expected in done.output
    assert "Traceback" not in done.output


def test_the_image_of_an_accelerator_is_not_built_on_a_torch_for_another_device(
    engine: Engine, image: str
) -> None:
    base = engine.client().inspect_image(image)["Id"]
    command = [sys.executable, str(ROOT / "containers" / "build.py"), "image", "cuda", "--base", base]
    done = subprocess.run(command, env=engine.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout
    assert "this torch was not built for CUDA" in done.stderr


def test_an_engine_that_does_not_let_this_user_in_says_so(engine: Engine) -> None:
    """Asked by a thread whose user is nobody: the kernel keeps users by thread."""
    import ctypes

    said: list[str] = []

    def ask() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        setresgid, setresuid = (119, 117) if os.uname().machine == "x86_64" else (149, 147)
        assert libc.syscall(116 if setresuid == 117 else 159, 0, 0) == 0
        assert libc.syscall(setresgid, 65534, 65534, 65534) == 0
        assert libc.syscall(setresuid, 65534, 65534, 65534) == 0
        try:
            open_engine()
        except InfrastructureError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert said
    assert said[0].startswith("PERMISSION_DENIED: this user may not talk to the Docker Engine")


def test_an_engine_that_is_not_there_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.folder}/none.sock")
    with pytest.raises(InfrastructureError, match="ENGINE_UNREACHABLE: the Docker Engine does not answer"):
        open_engine()
