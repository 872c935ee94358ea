"""Ranks that are forked from one server are as fresh as spawned ones, and end as they should."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import psutil
import pytest

from paceline.base.errors import InfrastructureError
from paceline.worker.processes import fork_server, process

PLAN = {"runner": {"start": "forked", "env": {"PACELINE_SAID": "by the runner"}}}


def tell(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Write down what a rank finds."""
    os.environ.update(environment)
    process.seed_generators()
    told = {
        "rank": int(os.environ["RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
        "said": os.environ["PACELINE_SAID"],
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "torch": "torch" in sys.modules,
        "family": any(name.startswith("paceline.families.") for name in sys.modules),
        "numpy": float(np.random.random()),
        "pytorch": float(sys.modules["torch"].rand(())),
        "python": random.random(),
        "parent": os.getppid(),
    }
    Path(arguments[0], f"{arguments[1]}-{told['rank']}.json").write_text(json.dumps(told))


def fail(arguments: list[str], environment: Mapping[str, str]) -> None:
    """End as told for this rank: an exit code, minus a signal, or never."""
    os.environ.update(environment)
    ending = arguments[int(os.environ["RANK"])]
    if ending == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if ending in ("never", "stubborn"):
        time.sleep(600)
    if int(ending) < 0:
        os.kill(os.getpid(), -int(ending))
        time.sleep(60)
    sys.exit(int(ending))


def stay(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Be a rank that waits for what never comes."""
    process.let_fork_server_end()
    process.die_with_parent()
    Path(arguments[0], str(os.getpid())).touch()
    time.sleep(600)


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads the launcher's environment, which this process then has too."""
    for name, value in fork_server.environment_of(PLAN).items():
        monkeypatch.setenv(name, value)
    fork_server.begin(PLAN)


def run(enter: fork_server.Enter, *arguments: str, ranks: int = 2) -> dict[int, int]:
    return fork_server.run_forked(
        enter,
        list(arguments),
        fork_server.environment_of(PLAN),
        ranks=range(ranks),
        world_size=ranks,
        host="127.0.0.1",
    )


@pytest.mark.gate
def test_ranks_have_torch_and_nothing_else_in_common(tmp_path: Path) -> None:
    for launch in ("first", "second"):
        assert run(tell, str(tmp_path), launch) == {}
    told = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert [(t["rank"], t["world_size"]) for t in told] == [(0, 2), (1, 2)] * 2
    assert all(t["torch"] and not t["family"] and t["threads"] == 1 for t in told)
    assert {t["said"] for t in told} == {"by the runner"}
    for generator in ("numpy", "python", "pytorch"):
        assert len({t[generator] for t in told}) == 4
    assert len({t["parent"] for t in told} - {os.getpid()}) == 1


@pytest.mark.parametrize(
    ("endings", "codes"),
    [
        (("0", "0", "0"), {}),
        (("0", "13", "never"), {1: 13}),
        (("never", "-9", "never"), {1: -9}),
        (("255", "never", "never"), {0: 255}),
        (("-11", "-9", "0"), {0: -11, 1: -9}),
    ],
)
def test_who_failed_by_itself_is_told_from_who_was_ended(
    endings: tuple[str, ...], codes: Mapping[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "TOGETHER_S", 2.0)  # busy cores let ranks start one after another
    assert run(fail, *endings, ranks=3) == codes


def test_a_rank_that_ignores_being_asked_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "ASKED_S", 0.3)
    monkeypatch.setattr(fork_server, "TOGETHER_S", 1.0)  # it has heard of its signal by then
    began = time.monotonic()
    assert run(fail, "stubborn", "1") == {1: 1}
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_do_not_outlive_a_killed_launcher(ranks: int, tmp_path: Path) -> None:
    code = (
        "import sys, test_fork_server as t; t.fork_server.begin(t.PLAN); "
        f"t.run(t.stay, {str(tmp_path)!r}, ranks={ranks})"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **fork_server.environment_of(PLAN), "PYTHONPATH": str(Path(__file__).parent)},
    )
    wait_until(lambda: len(list(tmp_path.iterdir())) == ranks, 60)
    launcher.kill()
    launcher.wait()
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == ranks
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), 10)
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


def wait_until(happened: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_store_that_is_not_there_is_named() -> None:
    with pytest.raises(InfrastructureError, match=r"no rendezvous at 127\.0\.0\.1"):
        fork_server.run_forked(
            fail,
            ["0"],
            {},
            ranks=[1],
            world_size=2,
            host="127.0.0.1",
            port=9,
            is_head=False,
            limit_s=1,
        )


def test_a_process_has_the_name_that_it_was_given() -> None:
    name = Path("/proc/self/comm")
    before = name.read_text().strip()
    try:
        process.set_name("paceline:12")
        assert name.read_text().strip() == "paceline:12"
    finally:
        process.set_name(before)


def test_the_launcher_does_without_torch_and_its_store_ends_with_the_group(tmp_path: Path) -> None:
    code = (
        "import sys, test_fork_server as t; t.fork_server.begin(t.PLAN); "
        f"t.run(t.tell, {str(tmp_path)!r}, 'only', ranks=2); t.fork_server.end(); "
        "left = t.psutil.Process().children(recursive=True); "
        "print('torch' in sys.modules, [p.cmdline() for p in left if 'resource_tracker' not in str(p.cmdline())])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **fork_server.environment_of(PLAN), "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["False", "[]"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_long_path_of_temporary_files_is_no_obstacle(tmp_path: Path) -> None:
    temporary, told = tmp_path / ("t" * 120), tmp_path / "told"
    for folder in (temporary, told):
        folder.mkdir()
    code = (
        "import test_fork_server as t, tempfile; t.fork_server.begin(t.PLAN); "
        f"t.run(t.tell, {str(told)!r}, 'only', ranks=1); print(tempfile.gettempdir())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            **fork_server.environment_of(PLAN),
            "PYTHONPATH": str(Path(__file__).parent),
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == str(temporary), "all but the socket is where it should be"
    assert len(list(told.iterdir())) == 1


def lose_the_store(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Be a rank whose group's store is killed."""
    (store,) = (p for p in psutil.Process(os.getppid()).children() if p.name() == "paceline:store")
    store.kill()
    sys.exit(13)


def test_a_killed_store_is_no_riddle_for_the_launcher() -> None:
    assert run(lose_the_store, ranks=1) == {0: 13}
    assert run(fail, "0", ranks=1) == {}, "the next group has a store again"


NOTHING = {"dynamo": False, "measures": False, "threads": 1, "cuda": False, "techniques": []}
"""What a rank tells that was forked from a server which has imported nothing but PyTorch."""


def told_by_ranks(code: str, folder: Path) -> list[dict[str, object]]:
    """Run a program whose ranks tell what is imported in them, and return what they told."""
    subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **fork_server.environment_of(PLAN), "PYTHONPATH": str(Path(__file__).parent)},
        check=True,
    )
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def test_what_a_family_has_imported_once_is_there_in_every_rank_and_starts_no_thread(tmp_path: Path) -> None:
    code = (
        "import sys, test_fork_server as t; t.fork_server.begin({**t.PLAN, 'preload': ['torch._dynamo']}); "
        f"t.run(t.tell_modules, {str(tmp_path)!r}); t.fork_server.end()"
    )
    assert told_by_ranks(code, tmp_path) == 2 * [{**NOTHING, "dynamo": True}]


BLOCK = {"family": "collectives", "params": {"op": "all_reduce"}, "ranks": 2}
MEASURES = "paceline.families.collectives.ops.all_reduce.run"


def test_what_measures_a_job_is_imported_once_and_what_cannot_be_is_left_to_ranks(tmp_path: Path) -> None:
    code = (
        "import sys, test_fork_server as t; "
        "t.fork_server.measuring = lambda plan, own=t.fork_server.measuring: ['paceline.gone', *own(plan)]; "
        "t.fork_server.begin({'runner': {**t.PLAN['runner'], 'device': 'cpu'}, 'blocks': [t.BLOCK]}); "
        f"t.run(t.tell_modules, {str(tmp_path)!r}); t.fork_server.end()"
    )
    assert told_by_ranks(code, tmp_path) == 2 * [{**NOTHING, "measures": True}]


@pytest.mark.parametrize(
    ("device", "blocks", "expected"),
    [
        ("cpu", [BLOCK, BLOCK], [MEASURES]),
        ("fake", [BLOCK], [MEASURES]),
        ("cuda", [BLOCK], []),
        ("plugin", [BLOCK], []),
        ("cpu", [BLOCK, {"family": "serving", "params": {"op": "decode"}}], []),
        ("cpu", [], []),
    ],
)
def test_nothing_is_imported_before_an_accelerator_is_asked_for_or_where_techniques_are_apart(
    device: str, blocks: list[object], expected: list[str]
) -> None:
    assert fork_server.measuring({"runner": {"device": device}, "blocks": blocks}) == expected


def tell_modules(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Write down what a rank has before it imports anything."""
    told = {
        "dynamo": "torch._dynamo" in sys.modules,
        "measures": MEASURES in sys.modules,
        "techniques": [name for name in sys.modules if name.startswith("paceline.baselines.")],
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "cuda": sys.modules["torch"].cuda.is_initialized(),
    }
    Path(arguments[0], f"{environment['RANK']}.json").write_text(json.dumps(told))
