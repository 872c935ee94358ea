"""An evaluation that is killed in the middle and resumed: nothing is paid twice, totals are the server's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import paceline_commands

from paceline.families.reasoning.core.problems.files import read
from paceline.workflows.evaluation.journal import ENDS
from paceline.workflows.evaluation.known_truth import KnownTruth

QUESTIONS, SAMPLES, CONCURRENCY = 12, 4, 4


def test_an_interrupted_evaluation_keeps_what_was_under_way(tmp_path: Path) -> None:
    file, out = tmp_path / "sums.jsonl", tmp_path / "out"
    rows = ({"question": f"What is {i} plus 5?", "answer": f"#### {i + 5}"} for i in range(QUESTIONS))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with KnownTruth("right=0.6,pause=100ms,lacks=n", read("gsm8k", str(file))) as server:
        command = paceline_commands.command("evaluate", f"--model=openai:{server.url}#mock")
        command += [f"--problems=gsm8k:{file}", "--methods=greedy,self-consistency", f"--output={out}"]
        environment = {**os.environ, "OPENAI_API_KEY": "none"}
        told = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 120
        while server.received < 15:
            assert told.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        told.send_signal(signal.SIGINT)
        printed, said = told.communicate(timeout=60)
    assert told.returncode == 3, said
    assert "--resume" in said
    assert "left unanswered" in printed
    paid = json.loads((out / "results.json").read_text())["paid"]
    # Nothing is lost: what was under way came to its end and is kept.
    assert paid["lost"] == 0
    assert paid["requests"] == server.received < QUESTIONS * 9
    assert paid["completion_tokens"] == sum(one.completion_tokens for one in server.served)


def test_a_killed_evaluation_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    file, out = tmp_path / "sums.jsonl", tmp_path / "out"
    rows = ({"question": f"What is {i} plus 5?", "answer": f"#### {i + 5}"} for i in range(QUESTIONS))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with KnownTruth("right=0.6,pause=50ms,lacks=n", read("gsm8k", str(file))) as server:
        command = paceline_commands.command("evaluate", f"--model=openai:{server.url}#mock")
        command += [f"--problems=gsm8k:{file}", "--methods=greedy,self-consistency", f"--samples={SAMPLES}"]
        command += [f"--concurrency={CONCURRENCY}", f"--output={out}", "--price=in=1,out=2"]
        environment = {**os.environ, "OPENAI_API_KEY": "none", "COLUMNS": "160"}
        killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while server.received < 20:
            assert killed.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        time.sleep(0.3)  # what was under way ends at the server
        at_kill = server.received
        assert at_kill < QUESTIONS * (SAMPLES + 1)
        done = subprocess.run(
            [*command, "--resume"], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    journal = [json.loads(text) for text in (out / "journal.jsonl").read_text().splitlines()]
    sent = [line["name"] for line in journal if line["kind"] == "sent"]
    ended = {line["name"] for line in journal if line["kind"] in ENDS}
    answered = {line["name"]: line for line in journal if line["kind"] == "answered"}
    served = {one.name: one for one in server.served}
    # Every request that the server has seen is in the journal under its name, and each name once.
    assert len(sent) == len(set(sent))
    assert set(served) <= set(sent)
    lost = set(sent) - ended
    assert len(lost) <= CONCURRENCY
    assert set(served) - ended <= lost
    # Of each question, each trace was kept once.
    traces = Counter((line["problem"], n) for line in answered.values() for n, _ in line["kept"])
    assert len(traces) == QUESTIONS * (SAMPLES + 1)
    assert set(traces.values()) == {1}
    # Request by request, and in all, what is counted here is what the server has counted.
    for name, line in answered.items():
        assert (line["prompt_tokens"], line["completion_tokens"]) == (
            served[name].prompt_tokens,
            served[name].completion_tokens,
        )
    paid = json.loads((out / "results.json").read_text())["paid"]
    mine = [one for name, one in served.items() if name not in lost]
    assert paid["completion_tokens"] == sum(one.completion_tokens for one in mine)
    assert paid["prompt_tokens"] == sum(one.prompt_tokens for one in mine)
    assert paid["requests"] == len(sent)
    assert paid["lost"] == len(lost)
    assert f"paid in all: {len(sent)} requests" in done.stdout
    if lost:
        assert f"{len(lost)} never answered: the server may charge" in done.stdout
