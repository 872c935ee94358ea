"""Evaluations of a served model: what is asked, kept, paid once, refused beforehand, and what a failure costs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from evaluation_runs import lines, problems, run, sums

from paceline.base.errors import UserError
from paceline.families.reasoning.core.questions.textual import REQUEST
from paceline.workflows.evaluation.figures import figures_of, table
from paceline.workflows.evaluation.known_truth import KnownTruth

pytestmark = pytest.mark.usefixtures("no_authorities")
SAMPLED = "greedy,self-consistency,esc:window=2"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return sums(tmp_path)


@pytest.fixture
def server(file: Path) -> Iterator[KnownTruth]:
    with KnownTruth("right=0.6", problems(file)) as one:
        yield one


def asked(server: KnownTruth, file: Path, *more: str, methods: str = SAMPLED) -> list[str]:
    return [
        f"--model=openai:{server.url}#mock",
        f"--problems=gsm8k:{file}",
        f"--methods={methods}",
        "--samples=4",
        "--concurrency=3",
        f"--output={file.parent / 'out'}",
        *more,
    ]


def test_totals_are_the_servers_own_and_traces_are_shared_by_methods(server: KnownTruth, file: Path) -> None:
    done = run(*asked(server, file, "--price=in=1,out=10", "--system=Be brief."))
    paid = done.outcome.totals
    assert paid.requests == server.received == len(server.served)
    assert paid.prompt_tokens == sum(one.prompt_tokens for one in server.served)
    assert paid.completion_tokens == sum(one.completion_tokens for one in server.served)
    assert (paid.lost, paid.failed, paid.refused) == (0, 0, 0)
    # A hello, and of each question the greedy trace and one request for four others.
    assert paid.requests == 1 + 6 * 2
    bodies = [one.body for one in server.served[1:]]
    assert all(body["messages"][0] == {"role": "system", "content": "Be brief."} for body in bodies)
    assert all(body["messages"][1]["content"].endswith(f"\n\n{REQUEST['number']}") for body in bodies)
    assert sorted({body.get("n", 1) for body in bodies}) == [1, 4]
    figures = {one.method: one for one in figures_of(done.outcome.rows, done.prices)}
    voted, greedy = figures["self-consistency"], figures["greedy"]
    assert voted.tokens is not None and greedy.tokens is not None and voted.tokens > 2 * greedy.tokens
    assert greedy.cost == pytest.approx((greedy.prompt_tokens * 1 + greedy.tokens * 10) / 1e6)  # type: ignore[operator]
    kept = json.loads((done.folder / "results.json").read_text())
    assert kept["paid"]["completion_tokens"] == paid.completion_tokens
    assert "sk-very-secret-key" not in (done.folder / "journal.jsonl").read_text()
    text = table(done.outcome, done.prices, "sums").render(wide=True)
    assert "paid in all: 13 requests" in text
    assert "read from the server's cache" in text


def test_what_is_resumed_or_replayed_asks_for_nothing_that_is_kept(server: KnownTruth, file: Path) -> None:
    first = run(*asked(server, file))
    count = server.received
    again = run(*asked(server, file, "--resume", methods="greedy,adaptive-consistency"))
    assert server.received == count
    replayed = run(*asked(server, file, "--replay"))
    assert server.received == count
    assert [row.plain() for row in replayed.outcome.rows] == [row.plain() for row in first.outcome.rows]
    assert all(row.status == "answered" for row in again.outcome.rows)
    with pytest.raises(UserError, match="an evaluation is there already"):
        run(*asked(server, file))
    with pytest.raises(UserError, match=r"begun with temperature 0\.6, and not 0\.9"):
        run(*asked(server, file, "--resume", "--temperature=0.9"))


@pytest.mark.parametrize("lacks", ["n", "logprobs", "seed", "n+seed+logprobs"])
def test_servers_that_lack_a_field_are_asked_without_it(server: KnownTruth, file: Path, lacks: str) -> None:
    server.manners.lacks = frozenset(lacks.split("+"))
    done = run(*asked(server, file))
    assert all(row.status == "answered" for row in done.outcome.rows)
    bodies = [one.body for one in server.served if one.status == 200]
    assert all(not (set(body) - {"n"}) & server.manners.lacks for body in bodies)
    if "n" in server.manners.lacks:
        assert len(bodies) == 1 + 6 * 5 + (1 if lacks != "n" else 0) or all("n" not in b for b in bodies[1:])
    assert done.outcome.totals.completion_tokens == sum(one.completion_tokens for one in server.served)


def test_a_method_that_needs_what_the_server_lacks_is_refused_before_any_question(
    server: KnownTruth, file: Path
) -> None:
    server.manners.lacks = frozenset({"logprobs", "continue_final_message"})
    with pytest.raises(
        UserError, match=r"'deepconf' needs log-probabilities.*'dynasor' needs answers that go on"
    ):
        run(*asked(server, file, methods="greedy,deepconf,dynasor"))
    # Hellos of one token, and none of the questions.
    assert all("Ann has" not in json.dumps(one.body["messages"]) for one in server.served)
    assert all(one.completion_tokens <= one.body.get("n", 1) for one in server.served)
    before = server.received
    with pytest.raises(UserError, match="as --without says"):
        run(*asked(server, file, "--without=logprobs", methods="deepconf"))
    assert server.received == before
    with pytest.raises(UserError, match="needs a partner"):
        run(*asked(server, file, methods="rebase"))
    with pytest.raises(UserError, match="a temperature above 0"):
        run(*asked(server, file, "--temperature=0", methods="esc"))


def test_a_folder_in_which_a_method_was_refused_is_no_obstacle(server: KnownTruth, file: Path) -> None:
    server.manners.lacks = frozenset({"logprobs"})
    for more in ((), ("--temperature=0.9",)):
        with pytest.raises(UserError, match="'deepconf' needs log-probabilities"):
            run(*asked(server, file, *more, methods="deepconf"))
    counted = server.received
    done = run(*asked(server, file, "--temperature=0.9", methods="greedy"))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    # What was found out is known, and its requests are among the totals.
    assert server.received == counted + 6
    with pytest.raises(UserError, match="an evaluation is there already"):
        run(*asked(server, file, "--temperature=0.9", methods="greedy"))


def test_a_server_that_draws_nothing_is_told(
    server: KnownTruth, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    run(*asked(server, file), said=said)
    assert not any("are equal, letter by letter" in line for line in said)
    answered = server._answered
    monkeypatch.setattr(server, "_answered", lambda path, body: answered(path, {**body, "temperature": 0}))
    done = run(*asked(server, file, f"--output={file.parent / 'other'}"), said=said)
    assert sum("traces of each of 6 questions are equal, letter by letter" in line for line in said) == 1
    assert json.loads((done.folder / "results.json").read_text())["questions_of_equal_traces"] == 6


def test_methods_that_look_into_traces_run_where_the_server_has_what_they_need(
    server: KnownTruth, file: Path
) -> None:
    done = run(*asked(server, file, methods="self-consistency,deepconf:warmup=2,dynasor"))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    probes = [one for one in server.served if one.body.get("continue_final_message")]
    assert any(one.body["messages"][-1]["content"].endswith("\\boxed{") for one in probes)
    probed = [row for row in done.outcome.rows if row.method == "dynasor"]
    # A probe sends its prefix again, and that counts.
    assert all(row.probe_tokens for row in probed)
    whole = {row.place: row for row in done.outcome.rows if row.method == "self-consistency"}
    assert all(row.prompt_tokens > whole[row.place].prompt_tokens for row in probed)
    length = next(lines(done.folder, "fact"))["value"]
    assert length is not None
    assert done.outcome.totals.completion_tokens == sum(one.completion_tokens for one in server.served)


def of_question(number: int) -> str:
    return f"Ann has {number + 2} apples"


def test_an_overlong_question_costs_itself_alone(server: KnownTruth, file: Path) -> None:
    def before(body: Mapping[str, Any], count: int) -> tuple[int, str, dict[str, str]] | None:
        long = of_question(2) in json.dumps(body["messages"])
        return (400, "maximum context length is 512 tokens", {}) if long else None

    server.manners.before = before
    done = run(*asked(server, file))
    failed = {row.place for row in done.outcome.rows if row.status == "failed"}
    assert failed == {2}
    assert sum(row.status == "answered" for row in done.outcome.rows) == 5 * 3
    assert "maximum context length" in done.outcome.rows[6].reason
    text = table(done.outcome, None, "sums").render(wide=True)
    assert "1 failed, which counts nowhere" in text
    assert done.outcome.totals.failed == 2  # what one method was refused, another does not ask for again
    # What is mended is asked for by the next run, and nothing else is.
    server.manners.before = lambda body, count: None
    count = server.received
    again = run(*asked(server, file, "--resume"))
    assert server.received == count + 2
    assert {row.status for row in again.outcome.rows} == {"answered"}


def test_a_probe_beyond_the_context_costs_itself_alone(server: KnownTruth, file: Path) -> None:
    def before(body: Mapping[str, Any], count: int) -> tuple[int, str, dict[str, str]] | None:
        beyond = body.get("continue_final_message") and of_question(2) in json.dumps(body["messages"])
        return (400, "maximum context length is 512 tokens", {}) if beyond else None

    server.manners.before = before
    done = run(*asked(server, file, methods="dynasor"))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    assert [row.place for row in done.outcome.rows if row.failed_probes] == [2]
    assert "probes failed, and their traces went on" in table(done.outcome, None, "sums").render(wide=True)
    assert done.outcome.totals.completion_tokens == sum(one.completion_tokens for one in server.served)


def test_a_probe_ends_the_thinking_that_it_cuts_short(server: KnownTruth, file: Path) -> None:
    server.manners.think, server.manners.right = "field", 2.0
    done = run(*asked(server, file, methods="dynasor"))
    asked_behind = [
        one.body["messages"][-1]["content"] for one in server.served if one.body.get("continue_final_message")
    ]
    probes = [text for text in asked_behind if text.startswith("<think>")]
    assert probes and all(text.count("</think>") == 1 for text in probes)
    # Probes agree on the right answer long before the traces end.
    assert all(row.right and row.tokens - row.probe_tokens < 4 * 30 for row in done.outcome.rows)


def test_a_request_that_is_too_slow_costs_its_question_alone_and_is_not_sent_twice(
    server: KnownTruth, file: Path
) -> None:
    given_up = threading.Event()

    def before(body: Mapping[str, Any], count: int) -> None:
        if of_question(1) in json.dumps(body["messages"]):
            given_up.wait(60)

    server.manners.before = before
    done = run(*asked(server, file, "--timeout=4s", methods="greedy"))
    given_up.set()
    failed = [row for row in done.outcome.rows if row.status == "failed"]
    assert [row.place for row in failed] == [1]
    assert "no answer within the time limit" in failed[0].reason
    assert done.outcome.totals.failed == 1
    assert done.outcome.totals.requests == 1 + 6


def test_a_refusal_for_capacity_is_sent_again_after_the_servers_pause(server: KnownTruth, file: Path) -> None:
    refused: list[float] = []

    def before(body: Mapping[str, Any], count: int) -> tuple[int, str, dict[str, str]] | None:
        if count == 3:
            refused.append(time.monotonic())
            return 429, "slow down", {"Retry-After": "1"}
        if refused and len(refused) == 1:
            refused.append(time.monotonic())
        return None

    server.manners.before = before
    done = run(*asked(server, file, "--concurrency=1", methods="greedy"))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    assert refused[1] - refused[0] >= 0.9
    assert done.outcome.totals.refused == 1
    assert done.outcome.totals.requests == server.received == 1 + 6 + 1


def test_a_server_that_restarts_costs_nothing(file: Path) -> None:
    first = KnownTruth("right=0.6", problems(file))
    port = first._server.server_address[1]
    second: list[KnownTruth] = []
    ended, begun = threading.Event(), threading.Event()

    def restart() -> None:
        first.__exit__(None, None, None)
        ended.set()
        time.sleep(0.5)  # on any machine: nobody listens for a while, and any while will do
        second.append(KnownTruth("right=0.6", problems(file), port=port).__enter__())
        begun.set()

    def before(body: Mapping[str, Any], count: int) -> tuple[int, str, dict[str, str]] | None:
        if count == 3:
            threading.Thread(target=restart).start()
            assert ended.wait(60)
            return 503, "restarting", {"Connection": "close"}
        return None

    first.manners.before = before
    first.__enter__()
    try:
        done = run(*asked(first, file, "--concurrency=1", methods="greedy"))
    finally:
        assert begun.wait(60)
        second[0].__exit__(None, None, None)
    assert {row.status for row in done.outcome.rows} == {"answered"}
    tokens = sum(one.completion_tokens for server in (first, *second) for one in server.served)
    assert done.outcome.totals.completion_tokens == tokens


@pytest.mark.parametrize("think", ["field", "tags"])
def test_thinking_is_kept_apart_from_the_answer(server: KnownTruth, file: Path, think: str) -> None:
    server.manners.think, server.manners.right = think, 2.0
    done = run(*asked(server, file, methods="greedy"))
    assert all(row.right for row in done.outcome.rows)
    traces = [one for line in lines(done.folder, "answered") for _, one in line["kept"]]
    assert all(one["thinking"] and "<think>" not in one["thinking"] + one["text"] for one in traces)
    assert all(one["text"].lstrip().startswith("The answer is") for one in traces)
    # Cut off while it thinks, a trace has no answer, whatever numbers are in its thinking.
    short = run(*asked(server, file, "--max-tokens=5", f"--output={file.parent / 'short'}", methods="greedy"))
    assert all(row.answer is None and row.cut == 1 for row in short.outcome.rows)


def test_a_model_without_a_chat_template_completes_texts(server: KnownTruth, file: Path) -> None:
    server.manners.lacks = frozenset({"chat"})
    with pytest.raises(UserError, match="--interface=completions: the model has no chat template"):
        run(*asked(server, file))
    out = f"--output={file.parent / 'completed'}"
    done = run(*asked(server, file, "--interface=completions", out))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    assert server.served[-1].body["prompt"].startswith("Question: Ann has")


def test_a_budget_ends_an_evaluation_and_the_next_run_goes_on(server: KnownTruth, file: Path) -> None:
    price = "--price=in=1,out=10"
    with pytest.raises(UserError, match="nobody says what tokens cost"):
        run(*asked(server, file, "--budget=money=1"))
    part = run(*asked(server, file, price, "--budget=tokens=300", "--concurrency=1"))
    assert 0 < part.outcome.left < 18
    count = server.received
    whole = run(*asked(server, file, price, "--budget=tokens=1M", "--resume"))
    assert whole.outcome.left == 0
    assert whole.outcome.totals.requests == server.received > count
    assert whole.outcome.totals.completion_tokens == sum(one.completion_tokens for one in server.served)
    names = [(one["problem"], n) for one in lines(whole.folder, "answered") for n, _ in one["kept"]]
    assert len(names) == len(set(names)) == 6 * 5


def test_a_server_that_is_not_there_is_one_sentence(file: Path) -> None:
    with pytest.raises(UserError, match="a plain request is refused: hello: no connection"):
        run(
            "--model=openai:http://127.0.0.1:9/v1#m",
            f"--problems=gsm8k:{file}",
            "--retries=0",
            f"--output={file.parent / 'none'}",
        )
