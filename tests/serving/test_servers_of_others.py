"""The load client against a server that others wrote, ``transformers serve``, on a tiny network made here.

What it writes is read without loss: every answer is what the same server says to the same prompt in one piece.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paceline_commands
import pytest

from paceline.families.serving.core.load.calls import Call, Messages, Workload
from paceline.families.serving.core.load.log.events import count_warnings
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, outcomes_of
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.workloads.conversation_calls import conversation_workload
from paceline.families.serving.core.workloads.conversation_choice import LengthLimits

for package in ("transformers", "tokenizers", "accelerate", "fastapi", "uvicorn", "openai"):
    pytest.importorskip(package, reason=f"transformers serve needs {package}: make dev")

tiny_networks = pytest.importorskip("tiny_networks")
WORDS: tuple[str, ...] = tiny_networks.WORDS

START_S = 180.0
LEAVE_OUT = ("ignore_eos",)
"""Field that it refuses."""
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


@dataclass(frozen=True)
class Serving:
    """A server under way."""

    url: str
    model: str

    def ask(self, path: str, **fields: Any) -> dict[str, Any]:
        """Return an answer in one piece."""
        body = json.dumps({"model": self.model, "temperature": 0, **fields}).encode()
        asked = urllib.request.Request(f"{self.url}/{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return dict(json.load(answer))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("network")
    tiny_networks.make(place, "llama", template=TEMPLATE, context=512, ends=False)
    return place


@pytest.fixture(scope="module")
def serving(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    said = tmp_path_factory.mktemp("said") / "log"
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with said.open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        )
    try:
        end = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, said.read_text()[-3000:]
                time.sleep(0.2)
        yield Serving(f"http://127.0.0.1:{port}/v1", str(folder))
    finally:
        process.terminate()
        process.wait(20)


def load(
    serving: Serving, workload: Workload, *, leave_out: tuple[str, ...] = LEAVE_OUT, **extra: Any
) -> tuple[Outcome, ...]:
    log = run_load(
        serving.url,
        serving.model,
        workload,
        limits=Limits(call_s=60, silence_s=60, run_s=200),
        asking=Asking(leave_out=leave_out, extra=extra),
    )
    return outcomes_of(log)


def prompt(number: int) -> str:
    return " ".join(WORDS[(7 * number + k) % len(WORDS)] for k in range(5))


@pytest.mark.parametrize("chat", [False, True])
def test_answers_are_read_without_loss(serving: Serving, chat: bool) -> None:
    tokens = 12
    calls = tuple(
        Call(number=n, prompt=prompt(n), output_tokens=tokens, at_s=0.1 * n, chat=chat) for n in range(5)
    )
    outcomes = load(serving, Workload(calls=calls))
    assert counts(outcomes) == {"complete": 5}, [o.detail for o in outcomes]
    # It ends with a finish reason and the usage, without [DONE], which is named and no fault.
    assert count_warnings([o.stream for o in outcomes]) == {"no_done": 5}
    for number, outcome in enumerate(outcomes):
        if chat:
            messages = [{"role": "user", "content": prompt(number)}]
            whole = serving.ask("chat/completions", messages=messages, max_tokens=tokens)
            text = whole["choices"][0]["message"]["content"]
        else:
            whole = serving.ask("completions", prompt=prompt(number), max_tokens=tokens)
            text = whole["choices"][0]["text"]
        assert outcome.stream.text == text
        assert (outcome.tokens, outcome.stream.usage_tokens) == (tokens, whole["usage"]["completion_tokens"])
        assert outcome.prompt_tokens == whole["usage"]["prompt_tokens"]
        assert (outcome.stream.finish, outcome.stream.counted_by) == ("length", "usage")
        assert sum(p.tokens for p in outcome.pieces) == tokens
        assert 0 < outcome.ttft_s <= outcome.e2e_s  # a busy server may write all at once


def test_conversations_of_a_file_are_asked_turn_by_turn_in_the_servers_own_count(
    serving: Serving, folder: Path, tmp_path: Path
) -> None:
    turns = [("human", 4), ("gpt", 6), ("human", 3), ("gpt", 5)]
    talks = [
        {"conversations": [{"from": who, "value": " ".join(WORDS[k : k + n])} for who, n in turns]}
        for k in (10, 60)
    ]
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(talks))
    given: dict[str, Any] = {
        "requests": 4,
        "rate_per_s": 4.0,
        "whole": True,
        "limits": LengthLimits(min_tokens=3),
    }
    workload, facts = conversation_workload(path, folder, form="text", **given)
    assert facts["conversations"]["requests"] == 4
    outcomes = load(serving, workload)
    assert counts(outcomes) == {"complete": 4}, [o.detail for o in outcomes]
    # As many as the file's own words have, by the tokenizer of the folder; later turns carry what was answered.
    assert [o.prompt_tokens for o in outcomes] == [4, 4 + 6 + 3] * 2
    assert [o.tokens for o in outcomes] == [6, 5] * 2
    workload, _ = conversation_workload(path, folder, form="chat", **given)
    outcomes = load(serving, workload)
    assert counts(outcomes) == {"complete": 4}, [o.detail for o in outcomes]
    first = outcomes[0].stream.text
    begun, later = (workload.calls[n].prompt for n in (0, 1))
    assert isinstance(begun, Messages) and isinstance(later, Messages)
    said = [*begun.turns, ("assistant", first), *later.turns]
    messages = [{"role": role, "content": text} for role, text in said]
    whole = serving.ask("chat/completions", messages=messages, max_tokens=5)
    assert outcomes[1].stream.text == whole["choices"][0]["message"]["content"]
    assert outcomes[1].prompt_tokens == whole["usage"]["prompt_tokens"]


def test_what_it_refuses_is_told_in_its_words(serving: Serving) -> None:
    call = Call(number=0, prompt=prompt(0), output_tokens=4, at_s=0.0)
    (outcome,) = load(serving, Workload(calls=(call,)), leave_out=())
    assert outcome.kind == "status"
    assert (outcome.detail or "").startswith("422: Unexpected fields in the request")
    assert "ignore_eos" in (outcome.detail or "")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_beams": 3}, "`streamer` cannot be used with beam search"),
        ({"sequence_bias": {'a"b': 1}}, 'a"b'),
    ],
)
def test_an_error_in_the_stream_is_one_though_its_json_may_be_broken(
    serving: Serving, config: dict[str, Any], words: str
) -> None:
    call = Call(number=0, prompt=prompt(0), output_tokens=4, at_s=0.0)
    (outcome,) = load(serving, Workload(calls=(call,)), generation_config=json.dumps(config))
    assert outcome.kind == "error_event"
    assert words in (outcome.detail or "")


def test_one_command_measures_it_and_all_its_calls_complete(serving: Serving, tmp_path: Path) -> None:
    command = paceline_commands.command("load", serving.url.removesuffix("/v1"))
    command += ["--model", serving.model, "--preset", "random:24/8", "--requests", "40", "--concurrency", "2"]
    command += ["--name", "theirs", "--results", str(tmp_path), "--allow-concurrent"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "without ignore_eos" in ran.stderr
    assert "calls: 40 complete" in ran.stdout
    assert "an answer 8 of 8" in ran.stdout
