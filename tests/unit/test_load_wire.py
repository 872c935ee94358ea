"""Heads of answers as servers and proxies write them, fed to a connection without a network; and requests' fields."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import pytest

from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.load.log.entries import Entry
from paceline.families.serving.core.load.log.outcomes import Outcome, outcome_of
from paceline.families.serving.core.load.sending.asking import OPTIONAL, Asking
from paceline.families.serving.core.load.sending.target import Target
from paceline.families.serving.core.load.sending.wire import Connection, response_parser

EVENTS = b"".join(b'data: {"choices": [{"index": 0, "text": "x", "token_ids": [1]}]}\n\n' for _ in range(2))
BODY = EVENTS + b"data: [DONE]\n\n"


class Wire:
    """A transport that keeps what was written; it says that it is secured, so that no socket is asked for."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def get_extra_info(self, name: str) -> object:
        return name == "sslcontext"

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def answered(data: bytes, *, cuts: tuple[int, ...] = (), closes: bool = False) -> tuple[Outcome, Entry, Wire]:
    """Let a connection carry one call that is answered with these bytes."""
    wire, entry = Wire(), Entry(number=0, tenant="", due_ns=0, asked_tokens=2)
    connection = Connection(response_parser(), 0, lambda connection, usable: None)
    connection.connection_made(wire)  # type: ignore[arg-type]
    connection.send(entry, b"POST", lambda entry: None)
    edges = (0, *cuts, len(data))
    for begin, end in itertools.pairwise(edges):
        connection.data_received(data[begin:end])
    if closes:
        connection.connection_lost(None)
    return outcome_of(entry), entry, wire


def head(status: str = "200 OK", body: bytes = BODY, **fields: str) -> bytes:
    named = {"Content-Type": "text/event-stream", "Content-Length": str(len(body))}
    named |= {key.replace("_", "-"): value for key, value in fields.items()}
    lines = "".join(f"{key}: {value}\r\n" for key, value in named.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\nContent-Encoding: gzip\r\n\r\n"


@pytest.mark.parametrize("before", [CONTINUE, HINTS, CONTINUE + HINTS, HINTS + HINTS])
def test_informational_responses_are_skipped_and_counted_however_they_are_cut(before: bytes) -> None:
    data = before + head()
    expected = [int(part[:3]) for part in before.split(b"HTTP/1.1 ")[1:]]
    for cut in range(0, len(before) + 30, 3):
        outcome, entry, wire = answered(data, cuts=(cut,))
        assert (outcome.kind, entry.status, entry.informational) == ("complete", 200, expected)
        assert outcome.stream.warnings == ("informational",)
        assert not wire.aborted


def test_another_protocol_is_no_informational_response() -> None:
    outcome, entry, _ = answered(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    )
    assert (outcome.kind, entry.status) == ("status", 101)


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted"])
def test_other_statuses_of_success_are_read_and_named(status: str) -> None:
    outcome, _, _ = answered(head(status))
    assert (outcome.kind, outcome.stream.warnings) == ("complete", ("status",))


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-ndjson", "text/plain; charset=utf-8"]
)
def test_streams_under_another_content_type_are_read_and_named(content_type: str) -> None:
    outcome, _, _ = answered(head(Content_Type=content_type))
    assert (outcome.kind, outcome.stream.warnings) == ("complete", ("content_type",))


def test_lines_of_json_under_their_own_type_are_read_and_named() -> None:
    lines = EVENTS.replace(b"data: ", b"").replace(b"\n\n", b"\n")
    finish = b'{"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}\n'
    outcome, _, _ = answered(head(body=lines + finish, Content_Type="application/x-ndjson"))
    assert (outcome.kind, outcome.tokens) == ("complete", 2)
    assert outcome.stream.warnings == ("bare_json", "content_type", "no_done")


def test_a_stream_that_was_packed_unasked_is_read_and_named() -> None:
    packed = gzip.compress(BODY)
    outcome, entry, _ = answered(head(body=packed, Content_Encoding="gzip"), cuts=(150,))
    assert (outcome.kind, outcome.tokens, entry.encoding) == ("complete", 2, "gzip")
    assert outcome.stream.warnings == ("compressed",)


ERROR = b'{"error": {"message": "bad model", "type": "not_found"}}'


@pytest.mark.parametrize(
    ("data", "kind", "detail"),
    [
        (
            head("404 Not Found", ERROR, Content_Type="application/json"),
            "status",
            "404: bad model (not_found)",
        ),
        (head("502 Bad Gateway", b"<html>", Content_Type="text/html"), "status", "502: <html>"),
        (
            head("400 Bad Request", gzip.compress(ERROR), Content_Encoding="gzip"),
            "status",
            "400: bad model (not_found)",
        ),
        (
            head("400 Bad Request", b"\x0b", Content_Encoding="br"),
            "status",
            "400: the answer is encoded as br",
        ),
        (
            head(body=ERROR, Content_Type="application/json"),
            "content_type",
            "application/json instead of text/event-stream: bad model (not_found)",
        ),
        (head(body=ERROR), "error_event", "bad model (not_found)"),
        (head("204 No Content", b""), "unended", "0 tokens"),
    ],
)
def test_an_answer_that_is_an_error_is_told_in_the_servers_words(data: bytes, kind: str, detail: str) -> None:
    outcome, _, _ = answered(data)
    assert outcome.kind == kind
    assert (outcome.detail or "").startswith(detail)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_ends_what_a_connection_carries(status: int) -> None:
    outcome, _, wire = answered(head(f"{status} Moved", b"", Location="https://other.example/v1/completions"))
    assert outcome.kind == "redirected"
    assert outcome.detail == f"{status} to https://other.example/v1/completions"
    assert wire.written == b"POST"


def test_a_redirect_to_nowhere_is_a_status() -> None:
    assert answered(head("304 Not Modified", b""))[0].kind == "status"
    assert answered(head("307 Temporary Redirect", b""))[0].kind == "status"


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + BODY
    assert answered(data, closes=True)[0].kind == "complete"
    early = CONTINUE + data
    assert answered(early, closes=True)[0].kind == "complete"


def sent(asking: Asking, **changed: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the fields and the lines of the head of a request."""
    target = Target.of("http://127.0.0.1:9/v1", "m", asking=asking)
    call = Call(**{"number": 0, "prompt": "hello", "output_tokens": 7, "at_s": 0.0, "tenant": "t", **changed})
    lines, _, body = target.request(call, call.prompt).decode("latin-1").partition("\r\n\r\n")
    return json.loads(body), lines.split("\r\n")


USUAL = {
    **{"model": "m", "max_tokens": 7, "temperature": 0, "ignore_eos": True, "stream": True, "user": "t"},
    **{"stream_options": {"include_usage": True}, "prompt": "hello"},
}


def test_a_request_asks_as_usual_where_nobody_says_otherwise() -> None:
    assert sent(Asking())[0] == USUAL
    assert Asking().facts() == {}


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_field_that_a_server_refuses_can_be_left_out(name: str) -> None:
    assert sent(Asking(leave_out=(name,)))[0] == {k: v for k, v in USUAL.items() if k != name}


def test_fields_are_renamed_and_added_and_headers_too() -> None:
    asking = Asking(
        rename={"max_tokens": "max_completion_tokens"},
        extra={"temperature": 1, "reasoning_effort": "low"},
        headers={"api-key": "secret"},
    )
    fields, lines = sent(asking, chat=True)
    assert "max_tokens" not in fields
    assert fields.items() >= {"max_completion_tokens": 7, "temperature": 1, "reasoning_effort": "low"}.items()
    assert "api-key: secret" in lines
    assert asking.facts() == {
        "renamed": {"max_tokens": "max_completion_tokens"},
        "extra": {"temperature": 1, "reasoning_effort": "low"},
        "headers": ["api-key"],
    }
    assert "secret" not in f"{asking}{asking.facts()}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leave_out": ("stream",)}, "'stream' cannot be left out; expected one of ignore_eos"),
        ({"rename": {"temperature": "heat"}}, "'temperature' cannot be renamed"),
        ({"leave_out": ("max_tokens",), "rename": {"max_tokens": "n"}}, "left out and renamed"),
        ({"extra": {"stream": False}}, "'stream' is the client's own"),
        ({"headers": {"Content-Length": "3"}}, "'Content-Length' is the client's own"),
        ({"headers": {"a b": "c"}}, "has characters"),
        ({"headers": {"a": "b\r\nc: d"}}, "has characters"),
    ],
)
def test_what_would_break_a_request_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Asking(**options)
