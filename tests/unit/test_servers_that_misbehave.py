"""Servers that refuse, break off, answer otherwise or lack something: each costs the request that it befell alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from evaluation_runs import lines, problems, run, sums

from paceline.base.errors import UserError
from paceline.families.reasoning.core.backends.chat import ChatClient, ChatError
from paceline.workflows.evaluation.figures import table
from paceline.workflows.evaluation.known_truth import KnownTruth

pytestmark = pytest.mark.usefixtures("no_authorities")
VICTIM = 2
Change = Callable[[dict[str, Any]], Any]


class Misbehaving(KnownTruth):
    """Changes its answer to one question, as often as it is told to."""

    def __init__(self, file: Path) -> None:
        super().__init__("right=2", problems(file))
        self.change: Change | None = None
        self.times = 1

    def answer(self, path: str, body: Mapping[str, Any], name: str) -> tuple[int, Any, dict[str, str]]:
        status, answer, headers = super().answer(path, body, name)
        if self.change is not None and status == 200 and about(body) and self.times:
            self.times -= 1
            return status, self.change(answer), headers
        return status, answer, headers


def about(body: Mapping[str, Any]) -> bool:
    """Tell whether a request asks the one question."""
    return f"Ann has {VICTIM + 2} apples" in json.dumps(body["messages"])


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("paceline.workflows.evaluation.sources.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return sums(tmp_path, 4)


@pytest.fixture
def server(file: Path) -> Iterator[Misbehaving]:
    with Misbehaving(file) as one:
        yield one


def asked(server: KnownTruth, file: Path, *more: str, methods: str = "greedy") -> list[str]:
    return [
        f"--model=openai:{server.url}#mock",
        f"--problems=gsm8k:{file}",
        f"--methods={methods}",
        "--samples=4",
        "--retries=3",
        f"--output={file.parent / 'out'}",
        *more,
    ]


def breaks_off(body: Mapping[str, Any]) -> None:
    raise ConnectionResetError("the thread ends and its connection with it")


@pytest.mark.parametrize(
    ("refusal", "unknown"),
    [
        (lambda body: (429, "slow down", {}), 0),
        (lambda body: (429, "slow down", {"Retry-After": "0.01"}), 0),
        (lambda body: (429, "slow down", {"Retry-After": formatdate(0, usegmt=True)}), 0),
        (lambda body: (429, "slow down", {"Retry-After": "soon"}), 0),
        (lambda body: (500, "out of luck", {}), 0),
        (lambda body: (503, "loading the model", {}), 0),
        (breaks_off, 1),
    ],
)
def test_what_may_pass_is_asked_again_and_costs_nothing(
    server: Misbehaving, file: Path, refusal: Callable[[Mapping[str, Any]], Any], unknown: int
) -> None:
    befallen: list[Any] = []

    def before(body: Mapping[str, Any], count: int) -> Any:
        if about(body) and not befallen:
            befallen.append(body)
            return refusal(body)
        return None

    server.manners.before = before
    done = run(*asked(server, file))
    assert befallen
    assert all(row.right for row in done.outcome.rows)
    totals = done.outcome.totals
    # Of a connection that broke nobody knows what the server charges, and the totals say so.
    assert (totals.refused, totals.failed, totals.lost) == (1, 0, unknown)
    assert totals.requests == server.received == 1 + 4 + 1
    assert totals.completion_tokens == sum(one.completion_tokens for one in server.served)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answer: json.dumps(answer).encode()[:60], "no JSON"),
        (lambda answer: answer | {"choices": []}, "it has no choices"),
        (lambda answer: answer | {"choices": None}, "the server answers otherwise"),
        (lambda answer: answer | {"usage": None}, "it counts no tokens"),
        (lambda answer: {"error": "odd"}, "the server answers otherwise"),
        (lambda answer: "hello", "the server answers otherwise"),
    ],
)
def test_an_answer_that_none_can_read_costs_its_question_alone(
    server: Misbehaving, file: Path, change: Change, said: str
) -> None:
    server.change = change
    done = run(*asked(server, file))
    failed = [row for row in done.outcome.rows if row.status == "failed"]
    assert [row.place for row in failed] == [VICTIM] and said in failed[0].reason
    totals = done.outcome.totals
    # The server has worked on it: what it may charge for is named.
    assert (totals.requests, totals.failed, totals.lost) == (1 + 4, 1, 1)
    again = run(*asked(server, file, "--resume"))
    assert all(row.right for row in again.outcome.rows)
    assert again.outcome.totals.requests == server.received == 1 + 4 + 1


class Blanks(BaseHTTPRequestHandler):
    """Begins an answer, and keeps the connection alive by blanks until the client has left."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                self.wfile.write(b" ")
            except OSError:
                return
            time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass


def test_blanks_that_keep_a_connection_alive_do_not_lengthen_a_request() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Blanks) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        client = ChatClient(f"http://127.0.0.1:{server.server_address[1]}/v1", timeout_s=1.0)
        with pytest.raises(ChatError, match="no answer within the time limit") as told:
            client.send({"model": "m", "messages": []}, "name")
        client.close()
        server.shutdown()
    # The server may have worked on it: it is not sent again, and counts as never answered.
    assert (told.value.again, told.value.unknown) == (False, True)


CONTEXT = {
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 4403 tokens (2355 in the "
    "messages, 2048 in the completion). Please reduce the length of the messages or completion.",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size or enable context "
    "shift",
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted in 10043 tokens.",
}


@pytest.mark.parametrize("whose", CONTEXT)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_question_beyond_the_context_costs_itself_alone(
    server: Misbehaving, file: Path, whose: str, status: int
) -> None:
    server.manners.before = lambda body, count: (status, CONTEXT[whose], {}) if about(body) else None
    done = run(*asked(server, file, methods="greedy,self-consistency"))
    failed = {row.place for row in done.outcome.rows if row.status == "failed"}
    assert failed == {VICTIM}
    assert CONTEXT[whose][:60] in next(row.reason for row in done.outcome.rows if row.place == VICTIM)
    assert sum(row.right for row in done.outcome.rows) == 3 * 2


def content(**fields: Any) -> Change:
    """Return what changes fields of the message."""

    def change(answer: dict[str, Any]) -> dict[str, Any]:
        (choice,) = answer["choices"]
        return answer | {"choices": [choice | {"message": choice["message"] | fields}]}

    return change


def test_content_in_parts_is_read_with_its_thinking_apart(server: Misbehaving, file: Path) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": r"perhaps \boxed{1}"}]}
    text = {"type": "text", "text": rf"It is \boxed{{{4 * VICTIM + 3}}}."}
    server.change = content(content=[thought, text])
    done = run(*asked(server, file))
    assert all(row.right for row in done.outcome.rows)
    (kept,) = [
        one
        for line in lines(done.folder, "answered")
        for _, one in line["kept"]
        if one["text"] == text["text"]
    ]
    assert kept["thinking"] == r"perhaps \boxed{1}"


@pytest.mark.parametrize(
    "fields",
    [
        {"content": None},
        {"content": ""},
        {"content": None, "reasoning_content": r"\boxed{11}"},
        {"content": None, "reasoning": r"\boxed{11}"},
        {"content": [{"type": "thinking", "thinking": r"\boxed{11}"}]},
    ],
)
def test_thinking_without_an_answer_is_no_answer(
    server: Misbehaving, file: Path, fields: dict[str, Any]
) -> None:
    server.change = content(**fields)
    done = run(*asked(server, file))
    assert {row.status for row in done.outcome.rows} == {"answered"}
    assert [row.place for row in done.outcome.rows if row.answer is None] == [VICTIM]


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("field", ["logprobs", "n", "seed", "top_k", "min_p", "top_p"])
def test_a_field_that_the_server_refuses_is_not_sent_with_any_question(
    server: Misbehaving, file: Path, field: str, status: int
) -> None:
    server.manners.before = lambda body, count: (status, "no", {}) if field in body else None
    methods = "greedy,self-consistency"
    if field == "logprobs":
        with pytest.raises(UserError, match="'deepconf' needs log-probabilities"):
            run(*asked(server, file, methods=f"{methods},deepconf"))
        assert not any(about(one.body) for one in server.served)
    done = run(*asked(server, file, f"--output={file.parent / 'other'}", methods=methods))
    assert all(row.right for row in done.outcome.rows)
    totals = done.outcome.totals
    # All fields, then that one alone; a status of 500 may pass, and is sent once more. None of the questions failed.
    expected = {"logprobs": (0, 0)}.get(field, (2, 0) if status < 500 else (2, 2))
    assert (totals.lacking + totals.failed, totals.refused, totals.failed) == (*expected, 0)
    questions = [one for one in server.served if "Ann has" in json.dumps(one.body["messages"])]
    assert not any(field in one.body for one in questions)
    others = {"n", "seed", "top_k", "min_p", "top_p"} - {field}
    assert all(others <= set(one.body) for one in questions if one.body.get("n", 1) > 1)


def test_a_field_that_breaks_the_server_is_known_without_retries(server: Misbehaving, file: Path) -> None:
    server.manners.before = lambda body, count: (500, "no", {}) if "top_k" in body else None
    done = run(*asked(server, file, "--retries=0", methods="self-consistency"))
    assert all(row.right for row in done.outcome.rows)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_server_that_gives_fewer_texts_than_asked_for_gives_them_all_the_same(
    server: Misbehaving, file: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = server._answered
    hellos: list[int] = []

    def fewer(path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # As it was found out, it has them all; the questions find it in another mood.
        if "Ann" not in json.dumps(body["messages"]):
            hellos.append(body.get("n", 1))
            return answered(path, body)
        return answered(path, {**body, "n": min(body.get("n", 1), most)})

    monkeypatch.setattr(server, "_answered", fewer)
    done = run(*asked(server, file, methods="self-consistency"))
    assert hellos == [4]
    assert all(row.right and row.traces == 4 for row in done.outcome.rows)
    kept = [(one["problem"], n) for one in lines(done.folder, "answered") for n, _ in one["kept"]]
    assert len(kept) == len(set(kept)) == 4 * 4
    assert done.outcome.totals.completion_tokens == sum(one.completion_tokens for one in server.served)


def test_a_most_of_texts_is_found_out_before_any_question(server: Misbehaving, file: Path) -> None:
    """llama.cpp gives as many texts as it has slots, and refuses more."""

    def before(body: Mapping[str, Any], count: int) -> tuple[int, str, dict[str, str]] | None:
        most = "Field 'n': Value must be between 1 <= value <= 2, but got 4"
        return (400, most, {}) if body.get("n", 1) > 2 else None

    server.manners.before = before
    few = run(*asked(server, file, "--samples=2", methods="self-consistency"))
    assert few.outcome.totals.failed == 0
    # More samples than were asked about are asked about again.
    more = run(*asked(server, file, "--samples=4", "--resume", methods="self-consistency"))
    assert all(row.right and row.traces == 4 for row in more.outcome.rows)
    refused = [one for one in server.served if one.status == 400]
    assert refused and not any(about(one.body) for one in refused)


def test_a_server_of_chats_alone_says_so_where_texts_are_asked_for(server: Misbehaving, file: Path) -> None:
    server.manners.before = lambda body, count: (404, "Not Found", {}) if "prompt" in body else None
    with pytest.raises(UserError, match="status 404") as found:
        run(*asked(server, file, "--interface=completions"))
    assert "--interface=chat" in str(found.value.fix)
    assert all(
        row.right
        for row in run(
            *asked(server, file, "--interface=chat", "--output=" + str(file.parent / "b"))
        ).outcome.rows
    )


def test_a_model_of_one_temperature_is_found_at_that_one(server: Misbehaving, file: Path) -> None:
    server.manners.before = lambda body, count: (
        (400, "temperature: 1 alone", {}) if body["temperature"] != 1 else None
    )
    with pytest.raises(UserError, match="temperature: 1 alone"):
        run(*asked(server, file, methods="self-consistency"))
    done = run(
        *asked(server, file, "--temperature=1", f"--output={file.parent / 'b'}", methods="self-consistency")
    )
    assert all(row.right for row in done.outcome.rows)


def test_a_refusal_of_what_extra_adds_names_it(server: Misbehaving, file: Path) -> None:
    server.manners.before = lambda body, count: (500, "broken", {}) if "odd" in body else None
    with pytest.raises(UserError, match="a plain request is refused") as told:
        run(*asked(server, file, "--extra=odd=1", "--retries=0"))
    assert told.value.fix == "see what the server says of odd, which --extra puts into every request"
    assert all(row.right for row in run(*asked(server, file)).outcome.rows)


def test_one_and_several_failures_are_told_in_their_number(file: Path) -> None:
    def before(body: Mapping[str, Any], count: int) -> Any:
        return (
            (400, "no", {})
            if any(f"Ann has {place + 2} apples" in json.dumps(body) for place in befallen)
            else None
        )

    with Misbehaving(file) as server:
        server.manners.before = before
        for befallen, said in (
            ([1], "1 failed, which counts nowhere"),
            ([1, 2], "2 failed, which count nowhere"),
        ):
            arguments = [one for one in asked(server, file) if not one.startswith("--output")]
            done = run(*arguments, f"--output={file.parent / str(len(befallen))}")
            assert f"greedy: {said}" in table(done.outcome, None, "sums").render()
