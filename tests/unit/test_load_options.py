"""What ``paceline load`` refuses before it asks any server, and the words that it has for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.base.errors import EXIT_USAGE, UserError
from paceline.base.families.family import load_family
from paceline.cli import application
from paceline.cli.measuring.extra_fields import extra_fields
from paceline.cli.measuring.load import load
from paceline.families.serving.core.client_figures import accounting, settled
from paceline.families.serving.core.load.log.entries import Entry
from paceline.families.serving.core.load.log.outcomes import outcome_of
from paceline.families.serving.core.load.log.prompts import unlike_asked
from paceline.families.serving.core.planning.points import wrong_places
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer, tokenizer_folder
from paceline.workflows.load_presets import parse_sweep

assert load.name == "load"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--rate", "nan"], "--rate"),
        (["--rate", "inf"], "--rate"),
        (["--rate", "-1"], "--rate"),
        (["--client-processes", "3", "--concurrency", "2"], "--client-processes"),
        (["--client-processes", "2", "--sweep", "concurrency:1,4"], "--client-processes"),
        (["--requests", "20", "--concurrency", "100"], "--requests"),
        (["--requests", "20", "--sweep", "concurrency:1,40"], "--requests"),
        (["--preset", "agent", "--requests", "20", "--concurrency", "4"], "--requests"),
        (["--preset", "chat", "--requests", "10", "--concurrency", "4"], "--requests"),
        (["--ready", "soon"], "--ready"),
        (["--budget", "soon"], "--budget"),
        (["--name", "Not a label"], "--name"),
    ],
)
def test_what_cannot_be_is_refused_with_the_option_that_says_it(options: list[str], where: str) -> None:
    told = CliRunner().invoke(application, ["load", "mock:", *options])
    assert isinstance(told.exception, UserError), told.output
    assert told.exception.exit_code == EXIT_USAGE
    assert where in str(told.exception)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ([], 100),
        (["--preset", "chat"], 100),
        (["--concurrency", "8"], 100),
        (["--concurrency", "128"], 1280),
        (["--preset", "chat", "--concurrency", "64"], 10 * 64 * 3),
        (["--preset", "agent", "--concurrency", "20"], 10 * 20 * (1 + 2 * (3 + 1))),
        (["--sweep", "concurrency:1,50"], 500),
        (["--concurrency", "128", "--requests", "200"], 200),
        (["--rate", "1000"], 100),
        (["--until-saturated"], 200),
    ],
)
def test_places_that_are_asked_for_are_each_taken_ten_times(options: list[str], calls: int) -> None:
    told = CliRunner().invoke(application, ["load", "mock:", "--dry-run", *options], catch_exceptions=False)
    assert f"\n  requests: {calls}\n" in told.stdout


def test_a_header_that_none_may_be_is_refused_before_a_server_is_asked() -> None:
    told = CliRunner().invoke(application, ["load", "http://127.0.0.1:1", "--header", "A B=c"])
    assert isinstance(told.exception, UserError)
    assert "A B" in str(told.exception)


def test_a_tokenizer_is_named_by_its_folder_or_its_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="a tokenizer needs tokenizers: make dev")
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="names of the hub need huggingface_hub: make dev"
    )
    commit = "0123456789abcdef0123456789abcdef01234567"
    kept = tmp_path / "models--some--model"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(commit)
    folder = kept / "snapshots" / commit
    folder.mkdir(parents=True)
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    core.save(str(folder / "tokenizer.json"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_tokenizer(tokenizer_folder(str(folder))).name == "some/model@0123456789ab"
    assert tokenizer_folder("some/model") == folder
    with pytest.raises(UserError, match="neither a folder here nor a tokenizer that the hub gives"):
        tokenizer_folder("some/other")
    with pytest.raises(UserError, match="no such file or folder"):
        tokenizer_folder("/no/such/folder")


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([], {}),
        (["top_p=0.9"], {"top_p": 0.9}),
        (["top_p=0.9", "user=anna"], {"top_p": 0.9, "user": "anna"}),
        (["return_token_ids=true", "stop=null"], {"return_token_ids": True, "stop": None}),
        (['stop=["a", "b=c"]'], {"stop": ["a", "b=c"]}),
        (['user="7"', "seed=7"], {"user": "7", "seed": 7}),
        (["user=a=b", "suffix="], {"user": "a=b", "suffix": ""}),
        (["top_p=NaN"], {"top_p": "NaN"}),  # a request with it were no JSON
        (
            ['chat_template_kwargs={"enable_thinking": false}'],
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
        (['{"top_p": 0.9, "user": "a=b"}'], {"top_p": 0.9, "user": "a=b"}),
        (['{"top_p": 0.9}', "user=anna"], {"top_p": 0.9, "user": "anna"}),
    ],
)
def test_a_further_field_is_a_name_with_its_value_or_an_object(
    items: list[str], fields: dict[str, Any]
) -> None:
    assert extra_fields(items) == fields


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (["top_p"], "no field and no JSON object"),
        (["=0.9"], "no field and no JSON object"),
        (["[1]"], "no field and no JSON object"),
        (["7"], "no field and no JSON object"),
        ([""], "no field and no JSON object"),
        (["{'user': 'a=b'}"], "no field and no JSON object"),
        (["{user=anna}"], "no field and no JSON object"),
        (["two words=1"], "no field and no JSON object"),
        (["top_p=1", "top_p=0.9"], "'top_p' is given twice"),
        (['{"top_p": 0.9}', "top_p=1"], "'top_p' is given twice"),
    ],
)
def test_what_is_no_further_field_is_told_with_both_forms(items: list[str], says: str) -> None:
    given = [word for item in items for word in ("--extra", item)]
    told = CliRunner().invoke(application, ["load", "http://127.0.0.1:9", *given])
    assert isinstance(told.exception, UserError) and told.exception.exit_code == EXIT_USAGE
    assert says in str(told.exception) and f"--extra={items[-1]}" in str(told.exception)
    if "twice" not in says:
        assert "top_p=0.9" in str(told.exception) and '{"top_p": 0.9}' in str(told.exception)


@pytest.mark.parametrize("text", ["concurrency:1.5", "concurrency:nan", "concurrency:0", "1,,2"])
def test_a_number_of_places_is_a_whole_one(text: str) -> None:
    with pytest.raises(UserError, match="no sweep"):
        parse_sweep(text)


def answered(prompt_tokens: int, asked: int) -> Entry:
    usage = f'{{"prompt_tokens": {prompt_tokens}, "completion_tokens": 1}}'
    body = f'data: {{"choices": [{{"index": 0, "text": "a"}}], "usage": {usage}}}\n\ndata: [DONE]\n\n'
    entry = Entry(number=0, tenant="", due_ns=0, asked_tokens=1, asked_prompt_tokens=asked)
    entry.sent_ns, entry.ended_ns, entry.status, entry.ending = 1, 9, 200, "complete"
    entry.content_type = "text/event-stream"
    entry.chunks.append((5, body.encode()))
    return entry


@pytest.mark.parametrize(
    ("read", "asked", "told"),
    [(7, 16, True), (15, 16, False), (30, 16, False), (300, 16, True), (0, 16, False), (80, 100, True)],
)
def test_prompts_that_lack_tokens_are_told_and_a_template_or_a_server_that_does_not_count_is_not(
    read: int, asked: int, told: bool
) -> None:
    outcome = outcome_of(answered(read, asked))
    assert outcome.ok, outcome.detail
    assert (unlike_asked([outcome]) is not None) == told


def test_calls_that_failed_are_counted_with_the_server_s_words() -> None:
    good = outcome_of(answered(16, 16))
    refused = answered(16, 16)
    refused.ending, refused.detail = "status", "503: later on"
    failed = outcome_of(refused)
    facts = accounting([good, failed, failed])
    assert facts["reasons"] == ["2 failed by status: 503: later on"]
    assert accounting([good])["reasons"] == []
    _, absent = settled({"ttft_p50": None, "tpot_p50": None}, {}, [good, failed, failed])
    assert absent["ttft_p50"] == "too many calls failed: 2 of 3"
    for outcomes in ([good], [good, failed]):  # whole answers have one piece: a call that failed is not why
        _, absent = settled({"tpot_p50": None}, {}, outcomes)
        assert absent["tpot_p50"] == "no answer has two pieces"
    _, absent = settled({"tpot_p50": None}, {}, [failed])
    assert absent["tpot_p50"] == "too many calls failed: 1 of 1"


CLOSED = {
    "arrivals": "closed",
    "workload": "sessions",
    "turns": 3,
    "branches": 0,
    "requests": 24,
    "concurrency": 8,
    "client_processes": 8,
}


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"requests": 23}, ["requests"]),
        ({"workload": "independent", "requests": 8}, []),
        ({"workload": "independent", "requests": 7}, ["requests"]),
        ({"workload": "trace", "requests": 8}, []),
        ({"client_processes": 9}, ["client_processes"]),
        ({"client_processes": 9, "requests": 23}, ["client_processes", "requests"]),
        ({"arrivals": "poisson", "requests": 3, "client_processes": 9}, []),
    ],
)
def test_places_of_a_closed_loop_that_nobody_can_take_are_told(
    changed: dict[str, str | int], wrong: list[str]
) -> None:
    """A process without a place, and a place without a call, would stand until the time limit."""
    assert [name for name, _, _ in wrong_places(CLOSED | changed)] == wrong


def test_a_suite_is_refused_as_the_command_is() -> None:
    operation = load_family("serving").operations["endpoint"]
    point = {p.name: p.default for p in operation.parameters} | {"op": "endpoint"} | CLOSED
    assert operation.check(point) == []
    (told,) = operation.check(point | {"client_processes": 9})
    assert told.startswith("client_processes: 9 processes share 8 places of a closed loop")


def test_a_place_is_held_while_the_user_thinks() -> None:
    operation = load_family("serving").operations["endpoint"]
    point = {p.name: p.default for p in operation.parameters} | CLOSED
    quick, slow = (operation.estimate_s(point | {"think_s": s}) for s in (0.0, 30.0))
    assert quick is not None and slow is not None
    assert slow - quick == pytest.approx(30 * 2 * (24 / 3) / 8)  # two pauses in each session of three calls
