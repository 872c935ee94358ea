"""What a program in the sandbox tries against files, memory, processes, clocks and the kernel fails, for its reason."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import paceline
from paceline.families.kernels.core.timing_process.client import Region
from paceline.worker.case_error import CaseError
from paceline.worker.channel import ChannelClosedError
from paceline.worker.sandbox import memory, seccomp, starts, stopping
from paceline.worker.sandbox.bubblewrap import BUBBLEWRAP, USER_NAMESPACES, Mounted, available, command
from paceline.worker.sandbox.channel import MAX_ANSWER, StrictChannel
from paceline.worker.sandbox.running import MAX_PRINTED, Printed, Sandbox

ATTACKS = Path(__file__).parents[1] / "mutants" / "sandbox" / "attacks_of_the_system.py"
KEY = 0x5041
REFUSED = "EPERM"
EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("files/job", "files/store", "files/home", "files/tmp-is-private"), "ENOENT"),
    **dict.fromkeys(("files/system", "files/root", "files/own-source"), "EROFS"),
    "files/log-is-none": "[False, False, False]",
    **{"files/handle": REFUSED, "shm/is-private": "ENOENT", "shm/system-v": "none"},
    **{
        "bounds/tmp": "ENOSPC after 256 MiB",
        "bounds/shm": "ENOSPC after 64 MiB",
        "bounds/limit": "ValueError",
    },
    "bounds/threads": "refused after ",
    **dict.fromkeys(("bounds/unnamed-memory", "bounds/shared-memory", "bounds/system-v-memory"), REFUSED),
    **dict.fromkeys(
        ("bounds/system-v-semaphores", "bounds/system-v-messages", "bounds/kernel-queues"), REFUSED
    ),
    **dict.fromkeys(("bounds/shared-memory-by-another-name", "bounds/memory-as-a-stack"), REFUSED),
    **{"bounds/memory-of-a-device": "EACCES", "bounds/own-memory": "taken", "bounds/devices": "EROFS"},
    **dict.fromkeys(("wakes/by-a-timer", "wakes/by-a-descriptor", "wakes/by-a-queue"), REFUSED),
    **{"proc/peak-of-memory": "EROFS", "proc/spared-by-the-kernel": "EROFS", "proc/goes-first": "500"},
    **dict.fromkeys(("sockets/internet", "sockets/unix", "sockets/netlink"), REFUSED),
    "sockets/no-network": "ENOENT",
    **{"proc/peers": "ENOENT", "proc/number-of-processes": "True", "proc/memory-of-the-first": "EACCES"},
    "proc/kernel-settings": "EROFS",
    **dict.fromkeys(("ptrace/attach", "ptrace/read", "ptrace/write", "ptrace/descriptors"), REFUSED),
    **{"signals/judge": "ESRCH", "clocks/set": "256", "clocks/settimeofday": REFUSED},
    **dict.fromkeys(("scheduler/real-time", "scheduler/batch", "scheduler/processors"), REFUSED),
    **dict.fromkeys(("scheduler/nice", "scheduler/attributes"), REFUSED),
    **dict.fromkeys(("kernel/bpf", "kernel/perf", "kernel/keys", "kernel/io_uring"), REFUSED),
    **dict.fromkeys(("kernel/userfaultfd", "kernel/modules", "kernel/kexec"), REFUSED),
    **dict.fromkeys(("namespaces/user", "namespaces/clone", "namespaces/join"), REFUSED),
    **{"namespaces/clone3": "ENOSYS", "mounts/mount": REFUSED, "mounts/root": REFUSED},
    **{"privileges/user": REFUSED, "privileges/set-user-id": "True", "privileges/capabilities": "True"},
    "privileges/bounding-set": "True",
    **dict.fromkeys(("environment/secret", "environment/preload"), "KeyError"),
    **{"devices/memory": "ENOENT", "devices/disk": "[]"},
    **dict.fromkeys(("memory/write", "memory/map", "memory/reopen", "memory/shrink"), REFUSED),
    **{"memory/protect": "EACCES", "memory/file-of-own-memory": "EROFS"},
}
"""How each attempt must end, or begin to say that it ended."""
OWN_NAMESPACE = {
    # The first process is the program itself, and the host's name that of the sandbox.
    **{"proc/memory-of-the-first": "", "privileges/user": "EINVAL"},
}
"""What ends otherwise where the caller's own user is mapped."""


def require(kind: str) -> None:
    """Skip where a kind of sandbox cannot be had."""
    found, reason = available(kind)
    if found != kind:
        pytest.skip(f"{kind}: {reason}")


def sandbox(kind: str, folder: Path, program: Path = ATTACKS) -> Sandbox:
    """Start a program in a sandbox."""
    mounted = Mounted(
        folders={
            str(Path(paceline.__file__).parent): "/opt/engine/paceline",
            str(program): "/opt/program.py",
        },
        environment={"PYTHONPATH": "/opt/engine", "PATH": "/usr/bin:/bin"},
        working_folder="/opt",
    )
    return Sandbox(kind, mounted, [sys.executable, "-s", "-B", "/opt/program.py"], folder / "log")


def here_to_find(folder: Path) -> dict[str, str]:
    """Put what an attacker looks for on this machine, and say where it is."""
    job, store = folder / "job", folder / "store.jsonl"
    job.mkdir()
    store.write_text("a record")
    shm, tmp = (
        Path("/dev/shm") / f"paceline-test-{os.getpid()}",
        Path("/tmp") / f"paceline-test-{os.getpid()}",
    )
    shm.write_text("shared")
    tmp.write_text("private")
    told = {"job": job, "store": store, "home": Path.home() / ".config", "tmp": tmp, "shm": shm.name}
    return {**{k: str(v) for k, v in told.items()}, "pid": str(os.getpid()), "source": "/opt/program.py"}


@pytest.mark.parametrize("kind", [BUBBLEWRAP, USER_NAMESPACES])
def test_what_a_program_in_the_sandbox_tries_fails_for_its_own_reason(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(kind)
    monkeypatch.setenv("PACELINE_TEST_SECRET", "secret")
    told = here_to_find(tmp_path)
    libc = ctypes.CDLL(None)
    segment = libc.shmget(KEY + os.getpid(), 4096, 0o1666)
    descriptor, mapped = memory.shared(4096, read_only=True)
    try:
        inside = sandbox(kind, tmp_path)
        try:
            inside.channel.send({**told, "key": str(KEY + os.getpid())}, [descriptor])
            answer, _ = inside.channel.receive(120)
        except ChannelClosedError:
            pytest.fail((tmp_path / "log").read_text())
        finally:
            inside.end()
    finally:
        libc.shmctl(segment, 0, None)
        os.close(descriptor)
        for place in (Path("/dev/shm", told["shm"]), Path(told["tmp"])):
            place.unlink()
    found = json.loads(answer["detail"])
    expected = EXPECTED | (OWN_NAMESPACE if kind == USER_NAMESPACES else {})
    wrong = {n: (found.get(n), e) for n, e in expected.items() if not str(found.get(n)).startswith(e)}
    assert not wrong
    assert set(found) == set(EXPECTED)
    # What the judge writes still arrives, and nobody there has changed a byte.
    assert mapped[:1] == b"\0"


STOPPED = """
import json, socket, sys, threading, time
channel = socket.socket(fileno=int(sys.argv[1]))
counts = [0] * 3
def count(place):
    while True:
        counts[place] += 1
for place in range(3):
    threading.Thread(target=count, args=(place,), daemon=True).start()
while True:
    message = json.loads(channel.recv(4096))
    if message["do"] == "fork":
        import os
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
    if message["do"] == "nested":
        channel.send(b"[" * 60000)
    elif message["do"] == "large":
        channel.send(b" " * 100000)
    elif message["do"] == "other":
        channel.send(json.dumps({"ok": True, "id": "0"}).encode())
    elif message["do"] == "said":
        channel.send(json.dumps({"id": message["id"], **message["answer"]}).encode())
    else:
        channel.send(json.dumps({"ok": True, "id": message["id"], "kept_bytes": sum(counts)}).encode())
"""


@pytest.fixture
def counting(tmp_path: Path) -> Sandbox:
    kind, reason = available()
    if kind not in (BUBBLEWRAP, USER_NAMESPACES):
        pytest.skip(reason)
    program = tmp_path / "counting.py"
    program.write_text(STOPPED)
    return sandbox(kind, tmp_path, program)


def test_nothing_runs_while_a_process_is_stopped_and_all_of_it_afterwards(counting: Sandbox) -> None:
    try:
        counting.channel.send({"do": "count"})
        counting.channel.receive(60)
        stopping.stop(counting.pid)
        before = stopping.cpu_ns(counting.pid)
        assert not stopping.others(counting.init, counting.pid)
        sum(range(300_000))
        assert stopping.cpu_ns(counting.pid) == before > 0
        stopping.go_on(counting.pid)
        counting.channel.send({"do": "count"})
        counting.channel.receive(60)
        assert stopping.cpu_ns(counting.pid) > before
    finally:
        assert counting.end() is None
    with pytest.raises(CaseError, match="its process has ended"):
        stopping.stop(counting.pid)


def test_a_daemon_that_left_its_parent_is_found(counting: Sandbox) -> None:
    try:
        counting.channel.send({"do": "fork"})
        counting.channel.receive(60)
        assert len(stopping.others(counting.init, counting.pid)) == 1
    finally:
        counting.end()


@pytest.mark.parametrize("what", ["nested", "large", "other"])
def test_an_answer_that_is_none_ends_the_talk_and_not_the_judge(counting: Sandbox, what: str) -> None:
    try:
        counting.channel.send({"do": what})
        with pytest.raises(CaseError, match="no answer"):
            counting.channel.receive(60)
    finally:
        counting.end()


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": False},
        {"ok": False, "status": "incorrect"},
        {"ok": False, "status": None, "reason": "r"},
        {"ok": False, "status": "incorrect", "reason": ["r"]},
        {"ok": "yes", "status": 1, "reason": "r"},
        *(
            {"ok": True, name: value}
            for name in ("kept_bytes", "weight_bytes")
            for value in (-1, "1", True, [1], 10**400, float("inf"), float("nan"))
        ),
    ],
    ids=str,
)
@pytest.mark.gate
def test_an_answer_of_other_kinds_of_values_ends_the_talk_and_not_the_judge(
    answer: dict[str, object],
) -> None:
    with pytest.raises(CaseError, match="no answer to what was asked"):
        answered({"do": "x"}, answer)


@pytest.mark.gate
def test_an_answer_says_what_was_asked_and_its_other_fields_are_dropped() -> None:
    for asked, field in (("make", "weight_bytes"), ("fetch", "changed_input"), ("trim", "kept_bytes")):
        with pytest.raises(CaseError, match="no answer to what was asked"):
            answered({"do": asked}, {"ok": True})
        assert answered({"do": asked}, {"ok": True, field: 3, "more": 1}) == {"ok": True, field: 3}
    assert answered({"do": "make"}, {"ok": True, "weight_bytes": None}) == {"ok": True, "weight_bytes": None}
    with pytest.raises(CaseError, match="no answer to what was asked"):
        answered({"do": "trim"}, {"ok": True, "kept_bytes": None})
    failed = {"status": "incorrect", "reason": "r" * 5000}
    assert answered({"do": "x"}, failed) == {"ok": False, "status": "incorrect", "reason": "r" * 4000}


def answered(question: dict[str, object], answer: dict[str, object]) -> dict[str, object]:
    """Return what a judge makes of an answer."""
    channel, other = StrictChannel.strict_pair()
    try:
        channel.send(question)
        other.send(json.dumps({**answer, "id": json.loads(other.recv(4096))["id"]}).encode())
        return channel.receive(10)[0]
    finally:
        channel.close()
        other.close()


@pytest.mark.gate
def test_whoever_starts_processes_without_end_is_waited_for_no_longer_than_others() -> None:
    channel, other = StrictChannel.strict_pair()
    asking, always = os.pipe()
    os.write(always, b"x")
    # There is always something to read: somebody asks whenever the judge looks.
    channel._starts = starts.Starts(asking)
    try:
        channel.send({"do": "x"})
        with pytest.raises(TimeoutError):
            channel.receive(0.05)
    finally:
        channel.close()
        other.close()
        os.close(always)


@pytest.mark.gate
def test_whoever_ran_while_it_was_stopped_is_found_out() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            stopping.stop(busy.pid)
            rest_ns = stopping.at_rest_ns(busy.pid)
            stopping.require_rest(busy.pid, rest_ns)
            # As a signal of its own would, unknown to its judge.
            stopping.go_on(busy.pid)
            while stopping.cpu_ns(busy.pid) - rest_ns <= 2 * stopping.LEAVING_NS:
                pass
            stopping.stop(busy.pid)
            with pytest.raises(CaseError, match="it ran while it was stopped"):
                stopping.require_rest(busy.pid, rest_ns)
        finally:
            busy.kill()


@pytest.mark.gate
def test_the_filter_refuses_what_it_lists_and_lets_everything_else_pass() -> None:
    for machine, refused in seccomp.REFUSED.items():
        code = seccomp.program(machine)
        assert code is not None
        architecture = seccomp.ARCHITECTURES[machine]
        assert {run(code, architecture, n) for n in refused.values()} == {0x00050001}
        allowed = set(range(460)) - set(refused.values()) - {435}
        assert {run(code, architecture, n) for n in allowed} == {0x7FFF0000}
        assert run(code, architecture, 435) == 0x00050026
        assert run(code, architecture ^ 1, 0) == 0x80000000
        clone = {"x86_64": 56, "aarch64": 220}[machine]
        assert run(code, architecture, clone, 0x10000000) == 0x00050001
        assert run(code, architecture, clone, 0x003D0F00) == 0x7FFF0000
        fcntl, mmap = {"x86_64": (72, 9), "aarch64": (25, 222)}[machine]
        assert run(code, architecture, fcntl, 3, 10) == 0x00050001
        assert {run(code, architecture, fcntl, 3, what) for what in range(1040) if what != 10} == {0x7FFF0000}
        for flags, answer in (
            *((flags, 0x00050001) for flags in (0x21, 0x23, 0x122, 0x102, 0x8021)),
            *((flags, 0x7FFF0000) for flags in (0x01, 0x02, 0x22, 0x20022, 0x4022, 0x8001)),
        ):
            assert run(code, architecture, mmap, 0, 1 << 20, 3, flags) == answer
    assert run(seccomp.program("x86_64") or b"", 0xC000003E, 0x40000000 | 1) == 0x00050001
    assert seccomp.program("riscv64") is None


def run(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Interpret a filter as the kernel does; return what it answers."""
    given = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *given)
    words = list(struct.iter_unpack("=HBBI", code))
    place = value = 0
    while True:
        operation, yes, no, operand = words[place]
        place += 1
        if operation == 0x06:
            return int(operand)
        if operation == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif operation == 0x54:
            value &= operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[operation]
            place += yes if holds else no


@pytest.mark.gate
def test_the_judge_is_asked_for_processes_and_not_for_threads() -> None:
    clone, fork, vfork = 56, 57, 58
    architecture = seccomp.ARCHITECTURES["x86_64"]
    for number, argument, answer in (
        (fork, 0, 0x7FC00000),
        (vfork, 0, 0x7FC00000),
        (clone, 17, 0x7FC00000),
        (clone, 0x4111, 0x7FC00000),
        (clone, 0x003D0F00, 0x7FFF0000),
        (0, 0, 0x7FFF0000),
    ):
        assert run(starts.program("x86_64"), architecture, number, argument) == answer
    assert run(starts.program("aarch64"), 0xC00000B7, 220, 17) == 0x7FC00000
    # Of two filters the stricter counts: whoever refuses everything but threads asks for nothing.
    assert seccomp.REFUSED["x86_64"].keys().isdisjoint({"fork", "vfork", "clone"})


ASKING = """
import os, socket, sys, threading
from paceline.worker.sandbox.starts import ask_from_now_on
end = socket.socket(fileno=int(sys.argv[1]))
data, _, _, _ = socket.recv_fds(end, 4096, 1)
answer = b'{"ok": true, "id": ' + data[data.rindex(b'"id": ') + 6:]
socket.send_fds(end, [answer], [ask_from_now_on()])
while data := end.recv(4096):
    threading.Thread(target=print).start()
    if b"fork" in data:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    end.send(b'{"ok": true, "id": ' + data[data.rindex(b'"id": ') + 6:])
"""


@pytest.mark.gate
@pytest.mark.parametrize("kind", [BUBBLEWRAP, USER_NAMESPACES])
def test_a_process_starts_between_passes_and_never_while_calls_are_timed(kind: str, tmp_path: Path) -> None:
    require(kind)
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    inside = sandbox(kind, tmp_path, program)
    channel = inside.channel
    try:
        channel.send({})
        assert channel.receive_starts(60) == {"ok": True}
        for _ in range(3):
            channel.send({"do": "fork"})
            assert channel.receive(60)[0] == {"ok": True}
        channel.is_timing = True
        # Threads are the candidate's own affair.
        channel.send({"do": "thread"})
        assert channel.receive(60)[0] == {"ok": True}
        channel.send({"do": "fork"})
        with pytest.raises(CaseError, match="it starts a process of its own while calls are timed"):
            channel.receive(60)
        # It waits for its judge, and can be stopped all the same.
        stopping.stop(inside.pid)
        channel.is_timing = False
        stopping.go_on(inside.pid)
        assert channel.receive(60)[0] == {"ok": True}
    finally:
        inside.end()
    with pytest.raises(ChannelClosedError):
        channel.receive(60)


@pytest.mark.gate
def test_what_is_printed_is_kept_up_to_a_limit_and_nobody_waits_for_it(tmp_path: Path) -> None:
    printed, given = Printed.into(tmp_path / "log")
    with os.fdopen(given, "wb") as file:
        file.write(b"begin")
        for _ in range(80):
            file.write(b"x" * (1 << 16))
    printed.wait(60)
    assert (tmp_path / "log").stat().st_size == MAX_PRINTED
    assert (tmp_path / "log").read_bytes().startswith(b"beginx")


@pytest.mark.gate
def test_nobody_cuts_off_memory_that_a_judge_reads() -> None:
    region = Region(8192)
    for size in (0, 4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(region.descriptor, size)
    region.close()


@pytest.mark.gate
def test_the_command_line_shares_no_namespace_and_binds_nothing_that_can_be_written() -> None:
    mounted = Mounted(
        folders={"/here/engine": "/there/engine"}, environment={"A": "b"}, working_folder="/there"
    )
    for kind in (BUBBLEWRAP, USER_NAMESPACES):
        words = command(kind, mounted, info=7, filter_=8)
        for namespace in ("pid", "ipc", "net", "uts"):
            assert f"--unshare-{namespace}" in words
        assert ("--unshare-user" in words) == (kind == USER_NAMESPACES)
        assert not {"--bind", "--dev-bind", "--bind-try", "--share-net"} & set(words)
        assert {"--clearenv", "--die-with-parent", "--new-session"} <= set(words)
        assert " ".join(words).endswith("--remount-ro / --info-fd 7 --seccomp 8")


@pytest.mark.parametrize("kind", [BUBBLEWRAP, USER_NAMESPACES])
def test_an_interpreter_that_is_installed_below_the_private_folders_is_seen(
    kind: str, tmp_path: Path
) -> None:
    require(kind)
    installed = Path("/tmp", f"paceline-test-{os.getpid()}-{kind}")
    (installed / "other").mkdir(parents=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", installed / "venv"], check=True)
        (site,) = (installed / "venv" / "lib").glob("*/site-packages")
        found = [str(Path(paceline.__file__).parents[1]), *(p for p in sys.path if "-packages" in p)]
        (site / "here.pth").write_text("\n".join(found))
        code = (
            "import os, subprocess, sys\n"
            "from paceline.worker.sandbox.bubblewrap import Mounted, available, command\n"
            "assert available(sys.argv[1]) == (sys.argv[1], ''), available(sys.argv[1])\n"
            "seen = Mounted(folders={}, environment={}, working_folder='/')\n"
            "null = os.open(os.devnull, os.O_WRONLY)\n"
            "words = command(sys.argv[1], seen, info=null, filter_=None)\n"
            "inside = 'import torch, os, sys; print(os.listdir(sys.argv[1]))'\n"
            "run = [sys.executable, '-c', inside, sys.argv[2]]\n"
            "subprocess.run([*words, *run], pass_fds=[null], check=True)\n"
        )
        python = installed / "venv" / "bin" / "python"
        done = subprocess.run(
            [python, "-c", code, kind, installed], capture_output=True, text=True, check=False
        )
    finally:
        shutil.rmtree(installed)
    assert (done.stdout.strip(), done.returncode) == ("['venv']", 0), done.stderr


def test_a_machine_without_bubblewrap_isolates_nothing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    available.cache_clear()
    assert available("auto") == ("unisolated", "bubblewrap is not installed: apt-get install bubblewrap")
    available.cache_clear()
    monkeypatch.undo()
    assert available("unisolated")[0] == "unisolated"


def test_a_channel_refuses_what_was_not_asked() -> None:
    channel, other = StrictChannel.pair()
    channel.send({"do": "x"})
    other.send(b"x" * (MAX_ANSWER + 1))
    with pytest.raises(CaseError):
        channel.receive(1)
    assert platform.machine() in seccomp.ARCHITECTURES
