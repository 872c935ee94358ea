"""Real namespaces, real packets: every test needs root.

Times are judged by their extremes, since a busy machine can make anything slower but nothing faster: the least round
trip shows the emulated delay, the fastest transfer the emulated rate.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from figures import Figures

import paceline
from paceline.base.errors import InfrastructureError, UserError
from paceline.worker.network.links import (
    CONTROL_INTERFACE,
    DATA_INTERFACE,
    Link,
    Network,
    enter,
    read_counters,
    supported,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
HERE = Path(__file__).parent
SOURCE = Path(paceline.__file__).parents[1]
MBIT = 125e3
SLACK_MS = 1.5
"""What a busy processor may add to the least of a hundred round trips."""


def start(program: str, *arguments: object, **environment: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            **{name: str(value) for name, value in environment.items()},
        },
    )


@contextmanager
def server(network: Network, kind: str, rank: int = 1) -> Iterator[None]:
    process = start("traffic.py", kind, network.namespace(rank))
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def client(network: Network, kind: str, *arguments: object, rank: int = 0, to: int = 1) -> Any:
    process = start("traffic.py", kind, network.namespace(rank), network.address(to), *arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(output)


def round_trip_ms(network: Network, rank: int = 0, to: int = 1) -> float:
    with server(network, "pong", to):
        return float(client(network, "ping", 100, rank=rank, to=to)["min"])


def rate_bytes_per_s(network: Network, size_bytes: int = 4 << 20, repeats: int = 3) -> float:
    with server(network, "sink"):
        times_s = client(network, "source", size_bytes, repeats)["times_s"]
    return float(size_bytes / min(times_s))


def left_overs() -> tuple[int, list[str]]:
    """Count network namespaces, and list the processes and interfaces a Network may leave."""
    namespaces = set()
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            namespaces.add((folder / "ns/net").readlink())
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if command.startswith("sh -s") or "worker/network/delay.py" in command:
            processes.append(command)
    listing = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    veths = [line for line in listing.stdout.splitlines() if "data" in line or "ctl" in line]
    return len(namespaces), processes + veths


def assert_soon(expected: tuple[int, list[str]]) -> None:
    deadline_s = time.monotonic() + 15
    while left_overs() != expected and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert left_overs() == expected


@pytest.mark.measured
def test_an_unshaped_link_answers_at_once(figure: Figures) -> None:
    with Network(num_ranks=2, link=Link(name="plain")) as network:
        figure("round trip", round_trip_ms(network), unit="ms", most=SLACK_MS)


@pytest.mark.measured
@pytest.mark.parametrize("delay_ms", [1, 5])
def test_a_round_trip_takes_twice_the_delay(delay_ms: int, figure: Figures) -> None:
    with Network(num_ranks=2, link=Link(name="far", delay_s=delay_ms / 1e3)) as network:
        least_ms = 2.0 * delay_ms
        figure("round trip", round_trip_ms(network), unit="ms", least=least_ms, most=least_ms + SLACK_MS)
        network.check()


@pytest.mark.measured
@pytest.mark.parametrize("rate_mbit, delay_s", [(20, 0.005), (100, 0), (100, 0.005)])
def test_a_link_carries_its_rate_and_no_more(rate_mbit: int, delay_s: float, figure: Figures) -> None:
    link = Link(name="slow", rate_bytes_per_s=rate_mbit * MBIT, delay_s=delay_s)
    with Network(num_ranks=2, link=link) as network:
        share = rate_bytes_per_s(network) / (rate_mbit * MBIT)
        figure("rate over the link's", share, unit="ratio", least=0.7, most=1.0)
        network.check()


@pytest.mark.parametrize("rate", [None, 100 * MBIT])
def test_counters_agree_with_the_bytes_sent(rate: float | None) -> None:
    with Network(num_ranks=2, link=Link(name="x", rate_bytes_per_s=rate)) as network:
        with server(network, "sink"):
            sent = client(network, "source", 4 << 20, 2)
        # A machine whose cores stand still for a while makes TCP send again what had arrived: the kernel counts both.
        assert 1.0 <= (sent["tx_bytes"] - sent["sent_again_bytes"]) / (8 << 20) <= 1.05
        assert 0 < sent["rx_bytes"] < 0.05 * (8 << 20)
        assert sent["tx_packets"] >= (8 << 20) / 65536


def test_what_is_sent_again_is_counted_where_it_was_sent() -> None:
    """A rank asks another that hears nothing: TCP asks again, and only the first rank's count says so."""
    with Network(num_ranks=2, link=Link(name="x")) as network:
        deaf = ["iptables", "-A", "INPUT", "-p", "tcp", "--dport", "5202", "-j", "DROP"]
        subprocess.run(["nsenter", f"--net={network.namespace(1)}", *deaf], check=True)
        lonely = start("traffic.py", "unheard", network.namespace(0), network.address(1))
        again = json.loads(lonely.communicate(timeout=30)[0])
        assert again["before"] == 0
        assert again["after"] >= 1514
        quiet = start("traffic.py", "again", network.namespace(1))
        assert json.loads(quiet.communicate(timeout=30)[0]) == 0


@pytest.mark.measured
def test_the_control_network_is_neither_shaped_nor_delayed(figure: Figures) -> None:
    link = Link(name="bad", rate_bytes_per_s=1 * MBIT, delay_s=0.1)
    with Network(num_ranks=2, link=link) as network, server(network, "pong"):
        address = network.control_address(1)
        process = start("traffic.py", "ping", network.namespace(0), address, 50)
        least_ms = json.loads(process.communicate(timeout=30)[0])["min"]
        figure("round trip", least_ms, unit="ms", most=SLACK_MS)


def test_the_switch_is_reached_over_the_control_network() -> None:
    with Network(num_ranks=2, link=Link(name="bad", delay_s=0.1)) as network:
        echo = start("traffic.py", "pong", network.switch_namespace)
        assert echo.stdout is not None
        echo.stdout.readline()
        address = network.switch_control_address
        ping = start("traffic.py", "ping", network.namespace(1), address, 50)
        assert json.loads(ping.communicate(timeout=30)[0])["min"] < SLACK_MS
        echo.communicate(timeout=10)


@pytest.mark.gate
def test_every_pair_of_eight_ranks_is_connected() -> None:
    with Network(num_ranks=8, link=Link(name="far", delay_s=0.002)) as network:
        for rank in range(8):  # how much longer it may take is measured: a busy machine answers late
            assert round_trip_ms(network, rank=rank, to=(rank + 1) % 8) >= 4
        network.check()


@pytest.mark.measured
def test_every_pair_of_eight_ranks_answers_in_time(figure: Figures) -> None:
    with Network(num_ranks=8, link=Link(name="far", delay_s=0.002)) as network:
        slowest = max(round_trip_ms(network, rank=rank, to=(rank + 1) % 8) for rank in range(8))
        figure("slowest round trip", slowest, unit="ms", least=4, most=4 + SLACK_MS)


@pytest.mark.measured
def test_reshaping_changes_rate_and_delay_of_a_running_network(figure: Figures) -> None:
    with Network(num_ranks=2, link=Link(name="plain")) as network:
        figure("rate, plain", rate_bytes_per_s(network) / MBIT, unit="Mbit/s", least=150)
        network.reshape(Link(name="slow", rate_bytes_per_s=100 * MBIT))
        figure("rate, slow", rate_bytes_per_s(network) / MBIT, unit="Mbit/s", least=70, most=100)
        network.reshape(Link(name="slower", rate_bytes_per_s=20 * MBIT, delay_s=0.005))
        figure("rate, slower", rate_bytes_per_s(network) / MBIT, unit="Mbit/s", least=14, most=20)
        figure("round trip, slower", round_trip_ms(network), unit="ms", least=10, most=10 + SLACK_MS)
        network.reshape(Link(name="near", delay_s=0.001))
        figure("round trip, near", round_trip_ms(network), unit="ms", least=2, most=2 + SLACK_MS)
        network.check()
        network.reshape(Link(name="plain"))
        figure("round trip, plain again", round_trip_ms(network), unit="ms", most=SLACK_MS)
        figure("rate, plain again", rate_bytes_per_s(network) / MBIT, unit="Mbit/s", least=150)


def test_ranks_that_all_send_to_one_lose_nothing() -> None:
    with Network(num_ranks=8, link=Link(name="x", rate_bytes_per_s=100 * MBIT)) as network:
        receiver = start("traffic.py", "gather", network.namespace(0), 7)
        assert receiver.stdout is not None
        receiver.stdout.readline()
        senders = [
            start("traffic.py", "scatter", network.namespace(rank), network.address(0), 4 << 20)
            for rank in range(1, 8)
        ]
        sent = [json.loads(sender.communicate(timeout=60)[0]) for sender in senders]
        received_bytes = json.loads(receiver.communicate(timeout=60)[0])
        show = ["tc", "-s", "qdisc", "show", "dev", "data-port0"]
        command = ["nsenter", f"--net={network.switch_namespace}", *show]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert received_bytes == 7 * (4 << 20)
    assert "(dropped 0," in shown
    assert all(1.0 <= bytes_sent / (4 << 20) <= 1.03 for bytes_sent in sent)


def test_connections_survive_reshaping() -> None:
    with Network(num_ranks=2, link=Link(name="far", delay_s=0.02)) as network:
        with server(network, "sink"):
            where = (network.namespace(0), network.address(1))
            process = start("traffic.py", "source", *where, 8 << 20, 40)
            for delay_s in (0.005, 0.0, 0.001, 0.0, 0.01):
                time.sleep(0.3)
                rate = 100 * MBIT if delay_s else None
                network.reshape(Link(name="x", rate_bytes_per_s=rate, delay_s=delay_s))
            network.reshape(Link(name="plain"))
            result = json.loads(process.communicate(timeout=60)[0])
        assert len(result["times_s"]) == 40


def test_nothing_is_left_after_a_normal_exit() -> None:
    before = left_overs()
    with Network(num_ranks=3, link=Link(name="x", rate_bytes_per_s=12.5e6, delay_s=0.005)):
        assert left_overs()[0] == before[0] + 4
        assert len(left_overs()[1]) == len(before[1]) + 7
    assert_soon(before)


def test_nothing_is_left_after_an_exception() -> None:
    before = left_overs()
    link = Link(name="x", rate_bytes_per_s=12.5e6, delay_s=0.005)
    with pytest.raises(ZeroDivisionError), Network(num_ranks=3, link=link):
        _ = 1 / 0
    assert_soon(before)


def test_nothing_is_left_after_the_creator_was_killed() -> None:
    before = left_overs()
    creator = start("creator.py")
    assert creator.stdout is not None
    assert creator.stdout.readline() == "open\n"
    assert left_overs()[0] == before[0] + 4
    creator.kill()
    creator.communicate()
    assert_soon(before)


@pytest.mark.parametrize("after_ms", [40, 80, 130, 200])
def test_nothing_is_left_when_the_creator_is_killed_while_building(after_ms: int) -> None:
    before = left_overs()
    creator = start("creator.py")
    time.sleep(after_ms / 1e3)
    creator.kill()
    creator.communicate()
    assert_soon(before)


def test_a_failure_while_building_leaves_nothing_and_says_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = left_overs()
    script = "ip link add broken type nonsense\n"
    monkeypatch.setattr("paceline.worker.network.shaping.rank_script", lambda *_: script)
    with (
        pytest.raises(InfrastructureError, match=r"(?s)rank 0's namespace.*Unknown device type"),
        Network(num_ranks=2, link=Link(name="x", delay_s=0.001)),
    ):
        pass
    assert_soon(before)


@pytest.mark.parametrize("part", ["_ranks", "_delays"])
def test_a_dead_part_is_noticed(part: str) -> None:
    with Network(num_ranks=2, link=Link(name="x", delay_s=0.001)) as network:
        network.check()
        os.kill(getattr(network, part)[1].pid, signal.SIGKILL)
        time.sleep(0.1)
        with pytest.raises(InfrastructureError, match=r"rank 1's .* has died"):
            network.check()


def test_packets_that_the_delay_program_cannot_hold_are_noticed() -> None:
    with Network(num_ranks=2, link=Link(name="x", delay_s=10)) as network:
        sender = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "for _ in range(70000): s.sendto(b'x', ('10.82.0.2', 9))"
        )
        enter_first = ["nsenter", f"--net={network.namespace(0)}"]
        subprocess.run([*enter_first, sys.executable, "-c", sender], check=True)
        with pytest.raises(InfrastructureError, match=r"rank 1's delay program could not keep up"):
            network.check()


def test_a_forked_copy_does_not_end_the_network() -> None:
    with Network(num_ranks=2, link=Link(name="plain")) as network:
        child = os.fork()
        if child == 0:
            network.close()
            os._exit(0)
        os.waitpid(child, 0)
        network.check()


def test_a_network_cannot_be_created_in_another_thread() -> None:
    errors: list[BaseException] = []

    def create() -> None:
        try:
            Network(num_ranks=2, link=Link(name="plain")).__enter__()
        except UserError as error:
            errors.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_counters_belong_to_the_thread_that_entered() -> None:
    names = []

    def look(path: str) -> None:
        enter(path)
        names.append(read_counters(CONTROL_INTERFACE).tx_bytes)

    with Network(num_ranks=1, link=Link(name="plain")) as network:
        thread = threading.Thread(target=look, args=(network.namespace(0),))
        thread.start()
        thread.join()
    assert names == [0]
    with pytest.raises(UserError, match="no interface 'data0'"):
        read_counters(DATA_INTERFACE)


def test_entering_a_network_that_has_ended_says_so() -> None:
    with Network(num_ranks=1, link=Link(name="plain")) as network:
        path = network.namespace(0)
    with pytest.raises(InfrastructureError, match="has ended"):
        enter(path)


@pytest.mark.measured
def test_supported_is_typically_quick(figure: Figures) -> None:
    times_s = []
    for _ in range(5):
        start_s = time.perf_counter()
        assert supported() is None
        times_s.append(time.perf_counter() - start_s)
    # A call may wait for the kernel, which removes the previous test's namespaces meanwhile.
    figure("time of `supported`", min(times_s), unit="s", most=0.5)


def test_supported_names_missing_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    have = ("ip", "setpriv", "unshare", "tc", "nsenter")
    monkeypatch.setattr("shutil.which", lambda name, path: name if name in have else None)
    assert supported(Link(name="r", rate_bytes_per_s=1e6)) is None
    expected = "shaped links need iptables: `apt-get install iproute2 iptables util-linux`"
    assert supported(Link(name="d", delay_s=0.001)) == expected


@pytest.mark.parametrize("broken, needs", [("tc", "tbf"), ("iptables", "NFQUEUE")])
def test_supported_names_missing_kernel_features(
    broken: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / broken).write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 2\n")
    (tmp_path / broken).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reason = supported()
    assert reason is not None
    assert needs in reason
    assert "(no such thing)" in reason
    assert "modprobe" in reason


def test_supported_asks_for_root() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n"
        "from paceline.worker.network.links import supported\nprint(supported())"
    )
    command = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"]
    interpreter = os.path.realpath(sys.executable)
    result = subprocess.run(
        [*command, interpreter, "-c", program], capture_output=True, text=True, check=False
    )
    if "Permission denied" in result.stderr:
        pytest.skip("the interpreter is not readable without root")
    assert "need root with CAP_SYS_ADMIN" in result.stdout


@pytest.mark.parametrize("num_ranks, rate", [(2, None), (3, 100 * MBIT)])
def test_gloo_all_reduce_sends_what_theory_says(num_ranks: int, rate: float | None) -> None:
    size_bytes, repeats = 1 << 20, 10
    with Network(num_ranks=num_ranks, link=Link(name="x", rate_bytes_per_s=rate)) as network:
        ranks = [
            start(
                "all_reduce.py",
                network.namespace(rank),
                size_bytes,
                repeats,
                RANK=rank,
                WORLD_SIZE=num_ranks,
                MASTER_ADDR=network.control_address(0),
                MASTER_PORT=29500,
                GLOO_SOCKET_IFNAME=DATA_INTERFACE,
                OMP_NUM_THREADS=1,
            )
            for rank in range(num_ranks)
        ]
        results = [json.loads(process.communicate(timeout=120)[0]) for process in ranks]
    ideal_bytes = 2 * (num_ranks - 1) / num_ranks * size_bytes
    for result in results:
        assert result["correct"]
        assert result[CONTROL_INTERFACE] < 0.01 * ideal_bytes
    ratios = [result[DATA_INTERFACE] / ideal_bytes for result in results]
    assert abs(statistics.mean(ratios) - 1) < 0.03
