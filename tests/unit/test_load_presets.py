"""What a person says of a load in a few words, and what is refused with the words that would be taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers

from paceline.base.errors import UserError
from paceline.cli import application
from paceline.families.serving.core.load.findings.server_metrics import changes, parsed
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.load import Side, suite_of
from paceline.workflows.load_presets import objectives, own_pace, parse_sweep, requests_of_trace, traffic_of

MOCK = Side(label="mock", options={"url": "mock:"}, server=None, counted_by="nobody")


def test_presets_are_parameters() -> None:
    assert traffic_of("random:300/40")["prompt_tokens"] == 300
    assert traffic_of("random:300/40")["output_tokens"] == 40
    assert traffic_of("chat")["workload"] == "sessions"
    assert traffic_of("prefix-shared")["workload"] == "shared-prefixes"
    assert traffic_of("agent")["workload"] == "workflows"


@pytest.mark.parametrize(
    "preset",
    ["random:", "random:3", "random:0/4", "random:a/b", "chat:3", "other", "trace:", "trace:/no/file"],
)
def test_a_preset_that_is_none_is_refused(preset: str) -> None:
    with pytest.raises(UserError):
        traffic_of(preset)


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (json.dumps({"timestamp": 0, "input_length": 9, "output_length": 3, "hash_ids": [1]}), "mooncake"),
        (
            json.dumps(
                {
                    "chat_id": 1,
                    "parent_chat_id": -1,
                    "timestamp": 0.1,
                    "input_length": 9,
                    "output_length": 3,
                    "turn": 1,
                    "hash_ids": [1],
                }
            ),
            "bailian",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "azure"),
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type", "burstgpt"),
    ],
)
def test_a_trace_s_format_is_told_by_its_first_line(tmp_path: Path, first: str, name: str) -> None:
    path = tmp_path / "trace"
    path.write_text(f"{first}\n")
    found = traffic_of(f"trace:{path}")
    assert (found["trace_format"], found["arrivals"]) == (name, "trace")


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("hello\n")
    with pytest.raises(UserError, match="no trace that is known"):
        traffic_of(f"trace:{path}")


def test_objectives_and_sweeps() -> None:
    assert objectives("ttft=200ms,tpot=30ms") == {"slo_ttft": 0.2, "slo_tpot": 0.03}
    assert objectives(None) == {}
    assert parse_sweep("1,2,4.5") == ("rate_per_s", [1.0, 2.0, 4.5])
    assert parse_sweep("concurrency:1,8") == ("concurrency", [1, 8])
    for wrong in ("ttft", "other=3ms", "ttft=fast"):
        with pytest.raises(UserError):
            objectives(wrong)
    for wrong in ("", "1,x", "0,1", "users:3", "-1"):
        with pytest.raises(UserError):
            parse_sweep(wrong)


@pytest.mark.parametrize("preset", ["chat", "random", "prefix-shared", "agent"])
def test_every_preset_is_a_legal_suite(tmp_path: Path, preset: str) -> None:
    other = Side(
        label="other", options={"url": "mock:gap=11ms", "api": "chat"}, server=None, counted_by="nobody"
    )
    workload = {**traffic_of(preset), "arrivals": "poisson", "rate_per_s": 5.0, "requests": 30}
    path = tmp_path / "load.yaml"
    path.write_text(suite_of([MOCK, other], workload))
    suite = load_suite(path)
    assert suite.model.protocol.until == "decided"
    path.write_text(suite_of([MOCK], workload, sweep=("rate_per_s", [1.0, 2.0]), launches=2))
    assert yaml.safe_load(path.read_text())["protocol"]["launches"] == 2
    load_suite(path)


def test_counters_of_a_server_are_told_as_what_grew_and_histograms_as_means() -> None:
    before = parsed(
        '# HELP x\na_total{m="1"} 3\na_total{m="2"} 4 1700000000\nb_seconds_sum 1.5\n'
        "b_seconds_count 3\nc 9\nd_total NaN\n"
    )
    assert before == {"a_total": 7.0, "b_seconds_sum": 1.5, "b_seconds_count": 3.0}
    after = {"a_total": 9.0, "b_seconds_sum": 2.5, "b_seconds_count": 5.0, "new_total": 1.0}
    assert changes(before, after) == {"a_total": 2.0, "b_seconds_mean": 0.5, "new_total": 1.0}
    assert changes(None, after) == {}


def traced(folder: Path, *instants_ms: int) -> dict[str, Any]:
    path = folder / "trace.jsonl"
    rows = [{"timestamp": at, "input_length": 4, "output_length": 2} for at in instants_ms]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return traffic_of(f"trace:{path}")


@pytest.mark.parametrize(
    ("requests", "within_s", "number", "rate"),
    [
        (None, None, 4, 4 / 2.0),
        (3, None, 3, 3 / 1.5),
        (None, 1.6, 3, 3 / 1.5),
        (None, 1.0, 2, 2 / 0.5),
        (None, 900.0, 6, 6 / 5.0),
    ],
)
def test_a_trace_that_nobody_paces_is_sent_at_its_own_instants(
    requests: int | None, within_s: float | None, number: int, rate: float, tmp_path: Path
) -> None:
    given = traced(tmp_path, 1000, 1500, 2500, 3000, 4000, 6000)
    found = own_pace(given, requests=requests, most=4, within_s=within_s)
    assert found == {"requests": number, "rate_per_s": rate}
    assert (requests_of_trace(given, most=9), requests_of_trace(given, most=5)) == (6, 5)


def test_a_trace_without_a_pace_and_one_that_is_too_short_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the first 2 requests of the trace came at one instant"):
        own_pace(traced(tmp_path, 7, 7, 9), requests=2, most=4, within_s=None)
    with pytest.raises(UserError, match="the trace has 3 requests that can be sent") as refused:
        own_pace(traced(tmp_path, 7, 8, 9), requests=4, most=4, within_s=None)
    assert "--requests=3" in str(refused.value)


def test_a_load_without_a_trace_has_no_requests_of_one() -> None:
    assert requests_of_trace(traffic_of("chat"), most=9) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], {"arrivals": "trace", "requests": 4, "rate_per_s": 4 / 3}),
        (["--duration", "1s"], {"arrivals": "trace", "requests": 2, "rate_per_s": 2.0}),
        (["--arrivals", "poisson"], {"arrivals": "poisson", "requests": 4, "rate_per_s": 4 / 3}),
        (["--rate", "8"], {"arrivals": "trace", "requests": 4, "rate_per_s": 8.0}),
        (["--concurrency", "2"], {"arrivals": "closed", "requests": 4, "concurrency": 2}),
        (["--arrivals", "at-once"], {"arrivals": "at-once", "requests": 4}),
    ],
)
def test_options_pace_a_trace_or_leave_its_instants_aside(
    options: list[str], said: dict[str, Any], tmp_path: Path
) -> None:
    path = traced(tmp_path, 0, 1000, 2000, 3000)["trace"]
    command = ["load", "mock:", "--preset", f"trace:{path}", "--dry-run", *options]
    told = CliRunner().invoke(application, command, catch_exceptions=False)
    workload = yaml.safe_load(told.stdout[told.stdout.index("suite:") :])["workload"]
    assert {
        k: workload[k] for k in ("arrivals", "requests", "rate_per_s", "concurrency") if k in workload
    } == said


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the options of a load of four exchanges in two conversations; a third one is too short."""
    place = tmp_path_factory.mktemp("conversations")
    core = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.save(str(place / "tokenizer.json"))
    turns = [("human", "one two three four five"), ("gpt", "six seven eight nine ten")]
    talks = [[*turns, *turns], [*turns, *turns], [("human", "hi"), ("gpt", "ho")]]
    path = place / "talks.json"
    path.write_text(
        json.dumps([{"conversations": [{"from": who, "value": said} for who, said in t]} for t in talks])
    )
    return ["load", "mock:", "--preset", f"conversations:{path}", "--tokenizer", str(place), "--dry-run"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], (4, 4)),
        (["--requests", "2"], (2, 2)),
        (["--concurrency", "1"], (4, 1)),
        (["--rate", "2"], (4, None)),
    ],
)
def test_conversations_are_asked_as_far_as_they_go(
    options: list[str], said: tuple[int, int | None], conversations: list[str]
) -> None:
    told = CliRunner().invoke(application, [*conversations, *options], catch_exceptions=False)
    workload = yaml.safe_load(told.stdout[told.stdout.index("suite:") :])["workload"]
    assert (workload["requests"], workload.get("concurrency")) == said


def test_more_than_conversations_have_is_refused_with_what_they_have(conversations: list[str]) -> None:
    told = CliRunner().invoke(application, [*conversations, "--requests", "5"])
    assert "the file has 4 exchanges that can be asked for" in str(told.exception)
    assert "--requests=4" in str(told.exception)


@pytest.mark.parametrize(
    ("options", "places"), [(["--requests", "1"], 1), (["--requests", "3"], 3), (["--requests", "9"], 4)]
)
def test_few_calls_take_fewer_places_than_many(options: list[str], places: int) -> None:
    told = CliRunner().invoke(application, ["load", "mock:", "--dry-run", *options], catch_exceptions=False)
    assert yaml.safe_load(told.stdout[told.stdout.index("suite:") :])["workload"]["concurrency"] == places


def test_a_duration_and_a_number_of_a_traces_requests_contradict_each_other(tmp_path: Path) -> None:
    path = traced(tmp_path, 0, 1000)["trace"]
    command = ["load", "mock:", "--preset", f"trace:{path}", "--duration", "1s", "--requests", "2"]
    told = CliRunner().invoke(application, command)
    assert isinstance(told.exception, UserError)
    assert "--duration" in str(told.exception)
