"""Techniques answer published problems on models of other people: a network of a folder, one behind an endpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.format.record_file import files_beside
from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import tiny_networks
from openai_server import Server, running

TECHNIQUES = ("self-consistency", "esc", "dynasor")
KEY = "sk-not-to-be-seen-anywhere"
QUESTIONS = 6


def write_problems(path: Path, extra: str = "") -> Path:
    """Write GSM8K's format; every answer is 7, which the endpoint likes to say."""
    rows = [{"question": f"what is {n} plus {7 - n}", "answer": "so we have\n#### 7"} for n in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + extra)
    return path


def run(folder: Path, model: str, problems: Path, techniques: tuple[str, ...] = TECHNIQUES) -> RunRecord:
    path = folder / "suite.yaml"
    path.write_text(
        "suite: reasoning/foreign\nversion: 1\nfamily: reasoning\ndescription: Other people's models answer as well.\n"
        f"workload: {{op: solve, model: '{model}', problems: 'gsm8k:{problems}', context: 46,"
        f" questions: {QUESTIONS}, samples: 4, orders: 2}}\n"
        f"baseline: {techniques[0]}\ntechniques: [{', '.join(techniques)}]\nprotocol: {{launches: 1}}\n"
    )
    suite = load_suite(path)
    return record_of([suite], folder)


def says_seven(request: dict[str, object]) -> list[str]:
    """Write the right answer for most seeds, another one for some, and go on for long."""
    digit = "7" if int(str(request["seed"])) % 4 else "3"
    return [" so", " the", " answer", " is", " \\boxed{", digit, "}", *([" then"] * 12)]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with running() as server:
        server.words = says_seven
        yield server  # type: ignore[misc]  # pytest's own way


def answers(record: RunRecord) -> dict[tuple[str, str], list[float]]:
    """Return what techniques answered and spent."""
    names = ("accuracy", "tokens", "critical_path_tokens", "accuracy_reordered", "tokens_reordered")
    return {(m.technique, m.metric.name): m.samples for m in record.measurements if m.metric.name in names}


def check_recorded(folder: Path, record: RunRecord, problems: Path) -> None:
    """Answer again on the traces that a run has kept, where its model is out of reach; all must be the same."""
    beside = files_beside(record.path)
    assert [p.name.split("-")[0] for p in beside.iterdir()] == ["traces"]
    again = run(folder, f"recorded:{beside}", problems)
    assert [m.reason for m in again.measurements if m.status != "ok"] == []
    assert answers(again) == answers(record)
    absent = {name for one in again.measurements for name in one.absent or {}}
    assert {"question_s", "time_per_token"} <= absent
    assert not any(m.artifacts for m in again.measurements)


def test_a_network_from_a_folder_answers(tmp_path: Path) -> None:
    network = tiny_networks.make(tmp_path / "tiny", "llama")
    record = run(tmp_path, f"transformers:{network}", write_problems(tmp_path / "gsm8k.jsonl"))
    assert [m.reason for m in record.measurements if m.status != "ok"] == []
    assert {m.technique for m in record.measurements} == set(TECHNIQUES)
    for one in record.measurements:
        if one.metric.name == "tokens":
            assert sum(one.samples) > 0
        if one.correctness and "model" in one.correctness:
            assert str(one.correctness["model"]).startswith("tiny-")
            assert len(str(one.correctness["problems"])) == 64
    # float32: other batches may give other tokens, so techniques answer on what was recorded
    absent = {name for one in record.measurements for name in one.absent or {}}
    assert {"question_s", "time_per_token"} <= absent
    for weights in network.glob("*.safetensors"):
        weights.unlink()
    check_recorded(tmp_path, record, tmp_path / "gsm8k.jsonl")


def test_an_endpoint_answers_and_its_key_is_nowhere(tmp_path: Path, endpoint: Server) -> None:
    record = run(tmp_path, f"openai:{endpoint.url}#tiny", write_problems(tmp_path / "gsm8k.jsonl"))
    assert [m.reason for m in record.measurements if m.status != "ok"] == []
    (right,) = (
        m.samples
        for m in record.measurements
        if m.technique == "self-consistency" and m.metric.name == "accuracy"
    )
    assert sum(right) >= QUESTIONS / 2
    assert {request.key for request in endpoint.requests} == {KEY}
    written = [p for p in (tmp_path / "results").rglob("*") if p.is_file()]
    assert written
    assert not [p for p in written if KEY.encode() in p.read_bytes()]
    num_requests = len(endpoint.requests)
    check_recorded(tmp_path, record, tmp_path / "gsm8k.jsonl")
    assert len(endpoint.requests) == num_requests


def test_a_malformed_row_and_a_silent_endpoint_end_in_reasons(tmp_path: Path) -> None:
    network = tiny_networks.make(tmp_path / "tiny", "llama")
    broken = write_problems(tmp_path / "broken.jsonl", '{"question": "what is one"}\n')
    record = run(tmp_path, f"transformers:{network}", broken, TECHNIQUES[:2])
    reasons = {m.reason for m in record.measurements}
    assert {m.status for m in record.measurements} == {"crashed"}
    assert all("broken.jsonl:9" in str(reason) and "answer" in str(reason) for reason in reasons)

    unused = "http://127.0.0.1:9/v1"
    good = write_problems(tmp_path / "gsm8k.jsonl")
    silent = run(tmp_path, f"openai:{unused}#tiny", good, TECHNIQUES[:1])
    assert {m.status for m in silent.measurements} == {"crashed"}
    assert all("127.0.0.1:9" in str(m.reason) for m in silent.measurements)
