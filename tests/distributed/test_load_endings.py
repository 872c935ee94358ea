"""``paceline load`` on servers as others write them, and whatever can be wrong with a server or a command line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import paceline_commands
import pytest
from load_command import accounting, load, measured, values
from openai_stub import Manners, serving

from paceline.base.errors import EXIT_INCORRECT, EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_USAGE
from paceline.families.serving.core.load.log.entries import read_log
from paceline.records.store.folder import sealed_paths

pytest.importorskip("httptools", reason="the load generator needs httptools: make dev")

STUB = Path(__file__).parent.parent / "openai_stub.py"
SLOW_S = 0.2
"""Until a first token: a client that other tests make late by milliseconds still measures such a server."""


def test_a_foreign_server_is_measured_with_its_own_counts_and_figures_beside(tmp_path: Path) -> None:
    results, manners = (
        tmp_path / "results",
        Manners(refuses=("ignore_eos",), tokens_per_word=1.5, version="7", first_s=SLOW_S),
    )
    with serving(manners) as server:
        ran = load(
            results, server.url, "--preset", "chat", "--requests", "12", "--concurrency", "3", "--seed", "1"
        )
        bodies = list(server.asked)
    assert ran.returncode == EXIT_OK, ran.stdout + ran.stderr
    assert "without ignore_eos" in ran.stderr and "version 7" in ran.stderr
    assert "stub:time_to_first_token" in ran.stdout
    assert all("ignore_eos" not in b for b in bodies)
    # later turns have the roles of what was said before
    longest = max((b for b in bodies if "messages" in b), key=lambda b: len(b["messages"]))
    assert [m["role"] for m in longest["messages"]] == ["user", "assistant"] * 2 + ["user"]
    facts = accounting(next(m for m in measured(results) if m.accounting))
    assert facts["server"]["metrics"]["stub:tokens_total"] >= 7 * 12


def test_a_server_that_counts_no_streams_is_measured_by_the_limit_of_its_answers(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with serving(Manners(usage=False, per_event=3, refuses=("ignore_eos",), first_s=SLOW_S)) as server:
        ran = load(results, server.url, "--preset", "random:16/8", "--requests", "12", "--concurrency", "3")
    assert ran.returncode == EXIT_OK, ran.stdout + ran.stderr
    assert "of answers by the limit at which they end" in ran.stderr
    facts = accounting(next(m for m in measured(results) if m.accounting))
    assert facts["counted_by"] == ["limit"]
    assert facts["outcomes"] == {"complete": 12}
    shown = subprocess.run(
        paceline_commands.command("show", "latest", "--definitions", "--results", results),
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == EXIT_OK and "calls: 12 complete" in shown.stdout


def test_a_server_that_a_command_starts_is_measured_and_gone_afterwards(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ran = load(
        tmp_path / "results",
        *(f"http://127.0.0.1:{port}", "--start", f"{sys.executable} {STUB} {port} {SLOW_S}"),
        *("--preset", "random:16/6", "--requests", "8"),
    )
    assert ran.returncode == EXIT_OK, ran.stdout + ran.stderr
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0


def test_a_command_that_gives_no_server_is_told(tmp_path: Path) -> None:
    ran = load(
        tmp_path / "results", "http://127.0.0.1:9", "--start", f"{sys.executable} -c 'raise SystemExit(7)'"
    )
    assert ran.returncode == EXIT_USAGE
    assert "ended with 7 before its server was ready" in ran.stderr


def test_a_server_that_dies_in_the_middle_keeps_what_was_measured(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with serving(Manners(dies_after=33, first_s=0.1, gap_s=0.02)) as server:
        # 3 calls find out how to ask, 4 warm up
        ran = load(results, server.url, "--preset", "random:16/4", "--requests", "40", "--concurrency", "4")
    assert ran.returncode == EXIT_INFRASTRUCTURE, ran.stdout + ran.stderr
    assert "no ttft_p90" in ran.stderr  # more than a tenth failed
    found = values(results)
    assert found["failed"][0] == pytest.approx(14 / 40)
    assert "disconnected" in ran.stdout
    # more than a tenth failed: the 90th percentile is nobody's
    assert "ttft_p90" not in found and "ttft_p50" in found


def test_too_few_whole_answers_give_no_figure_and_another_exit_code(tmp_path: Path) -> None:
    with serving(Manners(dies_after=17, first_s=0.1, gap_s=0.02)) as server:
        ran = load(tmp_path / "results", server.url, "--preset", "random:16/4", "--requests", "40")
    assert ran.returncode == EXIT_INFRASTRUCTURE
    assert "no ttft_p50" in ran.stderr


def test_where_no_call_completes_the_run_is_invalid_with_the_reasons_counted(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with serving(Manners(dies_after=3)) as server:
        ran = load(results, server.url, "--preset", "random:16/4", "--requests", "10", "--warm-up", "0")
    assert ran.returncode == EXIT_INCORRECT
    assert "no call of 10 has a whole answer: disconnected 10" in " ".join(ran.stdout.split())
    (failed,) = {m.record_id: m for m in measured(results)}.values()
    assert failed.status == "invalid"
    (path,) = sealed_paths(results)
    assert len(read_log(path.parent / str((failed.artifacts or {})["load"])).entries) == 10


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("127.0.0.1:1",), "fix: paceline load http://127.0.0.1:1"),
        (("mock:speed=3",), "expected mock:first=…,gap=…,places=…"),
        (("mock:", "--preset", "conversations:FILE"), "the model's tokenizer"),
        (("mock:", "--rate", "1", "--concurrency", "2"), "contradict each other"),
        (("mock:", "--arrivals", "poisson"), "arrivals need a rate"),
        (("mock:", "--duration", "5s"), "a duration is of an open loop"),
        (("mock:", "--extra", "[]"), "it is no field and no JSON object"),
        (("mock:", "--header", "Authorization=x"), "holds a secret"),
        (("mock:", "mock:", "mock:", "mock:", "mock:"), "expected: 1 to 4"),
    ],
)
def test_what_cannot_be_meant_is_told_with_what_could(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "FILE").write_text("[]")
    ran = load(tmp_path / "results", *arguments)
    assert ran.returncode == EXIT_USAGE
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_suite_that_is_run_can_be_kept_and_run_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    ran = load(tmp_path / "results", "mock:", "--sweep", "5,10", "--save-suite", str(path), "--dry-run")
    assert ran.returncode == EXIT_OK, ran.stderr
    assert ran.stdout == path.read_text()
    checked = subprocess.run(
        paceline_commands.command("plan", path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == EXIT_OK, checked.stderr
    assert "2 points" in checked.stdout
