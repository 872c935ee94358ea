"""Redirects: which are followed, what goes where, what it costs; by rules, and over real connections."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from figures import Figures
from warm import Warm, warm

from paceline.families.serving.core.load import processes
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.log.entries import Log
from paceline.families.serving.core.load.log.events import count_warnings
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, outcomes_of
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.load.sending.redirects import Place, next_place, origin_of

ASKED = "http://127.0.0.1:8000/v1/completions"


@pytest.fixture(scope="module")
def client() -> Iterator[Warm]:
    with warm(processes.__name__, "httptools", "uvloop") as process:
        yield process


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the client; where its times are measured, start it plainly."""
    if request.node.get_closest_marker("measured") is None:
        monkeypatch.setattr(processes, "subprocess", request.getfixturevalue("client"))


def place(url: str) -> Place:
    origin = origin_of(url)
    return Place(origin, url.removeprefix(origin.address) or "/")


def led(status: int, location: str, *, asked: str = ASKED, **options: Any) -> str:
    found = next_place(place(asked), status, location, **{"follow": "same-origin", **options})
    return found if isinstance(found, str) else f"-> {found.address}"


@pytest.mark.parametrize(
    ("status", "location", "found"),
    [
        (307, "/v1/completions/", "-> http://127.0.0.1:8000/v1/completions/"),
        (308, "completions/?a=b", "-> http://127.0.0.1:8000/v1/completions/?a=b"),
        (307, "http://127.0.0.1:8000/x#y", "-> http://127.0.0.1:8000/x"),
        (307, "/a bc%20d", "-> http://127.0.0.1:8000/a%20bc%20d"),
        (307, "/r\xe9sum\xe9", "-> http://127.0.0.1:8000/r%E9sum%E9"),
        (307, "http://[::1/x", "307 to 'http://[::1/x', which is no address of HTTP"),
        (307, "//[bad/x", "which is no address of HTTP"),
        (307, "", "307 back to http://127.0.0.1:8000/v1/completions: the server sends calls in a circle"),
        (307, "mailto:x@y", "307 to 'mailto:x@y', which is no address of HTTP"),
        (307, "http://127.0.0.1:8001/v1/completions", "of another origin than http://127.0.0.1:8000"),
        (308, "https://127.0.0.1:8000/v1/completions", "of another origin"),
        (308, "http://localhost:8000/v1/completions", "of another origin"),
        (301, "/v1/completions/", "301: name http://127.0.0.1:8000/v1/completions/ as the address; only 307"),
        (302, "/v1/completions/", "only 307 and 308 keep a prompt"),
        (303, "/v1/completions/", "only 307 and 308 keep a prompt"),
    ],
)
def test_one_redirect_that_keeps_the_prompt_is_followed_at_its_origin(
    status: int, location: str, found: str
) -> None:
    told = led(status, location)
    assert told == found if found.startswith("->") else found in told


@pytest.mark.parametrize(
    ("location", "options", "found"),
    [
        ("http://other:9/x", {"follow": "anywhere"}, "-> http://other:9/x"),
        ("https://other/x", {"follow": "anywhere"}, "-> https://other:443/x"),
        ("http://other/x", {"follow": "anywhere", "asked": "https://one/v1"}, "it is not secured"),
        ("/x", {"follow": "never"}, "redirects are not followed"),
        (
            "/z",
            {"before": ["http://127.0.0.1:8000/y"]},
            f"sent on once already, from http://127.0.0.1:8000/y to {ASKED}",
        ),
        ("/y", {"before": ["http://127.0.0.1:8000/y"]}, "back to http://127.0.0.1:8000/y"),
    ],
)
def test_others_are_allowed_or_forbidden_and_a_second_one_is_none(
    location: str, options: dict[str, Any], found: str
) -> None:
    told = led(307, location, **options)
    assert told == found if found.startswith("->") else found in told


EVENT = b'data: {"choices": [{"index": 0, "text": "x", "token_ids": [1]}]}\n\n'
BODY = EVENT * 3 + b"data: [DONE]\n\n"
Answer = tuple[int, str, bytes]
"""Status, location, body."""


@dataclass
class Server:
    """What came to a server of this test: first lines, heads and bodies, and over how many connections."""

    port: int = 0
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def serving(
    answer: Callable[[str, int], Answer], *, delay_s: float = 0.0, closes: bool = False
) -> Iterator[Server]:
    """Serve: the path and the number of the request give the answer, which comes after a delay."""
    told = Server()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.connections += 1
        try:
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                heads = dict(line.lower().split(": ", 1) for line in lines if line)
                body = await reader.readexactly(int(heads["content-length"]))
                told.seen.append((first, heads, body))
                status, location, said = answer(first.split(" ")[1], len(told.seen))
                await asyncio.sleep(delay_s)
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(said)}\r\n"
                head += f"Location: {location}\r\n" if location else "Content-Type: text/event-stream\r\n"
                head += "Connection: close\r\n" if closes else ""
                writer.write(f"{head}\r\n".encode() + said)
                await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    with served(talk, told):
        yield told


@contextmanager
def served(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]], told: Server
) -> Iterator[None]:
    """Let a server talk in a thread of its own, and end what it still waits for."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        told.port = server.sockets[0].getsockname()[1]
        ready.set()
        with suppress(asyncio.CancelledError):
            await server.serve_forever()

    async def end_others() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def run() -> None:
        running.append(loop.create_task(serve()))
        loop.run_until_complete(running[0])
        loop.run_until_complete(end_others())
        loop.close()

    running: list[asyncio.Task[None]] = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(running[0].cancel)
        thread.join(60)


def load(
    server: Server, num: int = 3, *, every_s: float = 0.02, **options: Any
) -> tuple[Log, tuple[Outcome, ...]]:
    calls = tuple(Call(number=n, prompt=f"p{n}", output_tokens=3, at_s=every_s * n) for n in range(num))
    log = run_load(
        server.url,
        "m",
        Workload(calls=calls),
        limits=Limits(call_s=200, silence_s=200, run_s=300),
        **options,
    )
    return log, outcomes_of(log)


def slashed(path: str, number: int) -> Answer:
    return (200, "", BODY) if path.endswith("/") else (307, f"{path}/", b"<html>moved</html>")


@pytest.mark.parametrize("closes", [False, True])
def test_calls_go_on_to_the_same_origin_with_their_prompt_and_key_and_are_counted(closes: bool) -> None:
    asking = Asking(headers={"api-key": "mine"})
    with serving(slashed, delay_s=0.03, closes=closes) as server:
        log, outcomes = load(server, key="secret", asking=asking)
    assert counts(outcomes) == {"complete": 3}
    assert count_warnings([o.stream for o in outcomes]) == {"redirected": 3}
    # of each prompt in turn; calls themselves may overlap
    of_prompt: dict[bytes, list[str]] = {}
    for first, _, body in server.seen:
        of_prompt.setdefault(body, []).append(first)
    both = ["POST /v1/completions HTTP/1.1", "POST /v1/completions/ HTTP/1.1"]
    assert list(of_prompt.values()) == [both] * 3
    assert all(h["authorization"] == "bearer secret" and h["api-key"] == "mine" for _, h, _ in server.seen)
    for entry, outcome in zip(log.entries, outcomes, strict=True):
        # Two answers of 30 ms lie in its time, which begins when it was sent first.
        assert outcome.ttft_s >= 0.06
        ((status, address, redirected_ns),) = entry.redirects
        assert (status, address, entry.status) == (307, f"{server.url}/completions", 200)
        assert entry.sent_ns is not None
        assert entry.sent_ns + 30_000_000 <= redirected_ns


def test_a_call_goes_on_over_the_connection_that_the_redirect_came_from() -> None:
    with serving(slashed) as server:
        _, outcomes = load(server, 1)
    assert counts(outcomes) == {"complete": 1}
    assert server.connections == 1


@pytest.mark.measured
@pytest.mark.parametrize("closes", [False, True])
def test_a_call_that_is_redirected_is_sent_at_its_instant(closes: bool, figure: Figures) -> None:
    with serving(slashed, delay_s=0.03, closes=closes) as server:
        _, outcomes = load(server, every_s=0.25)
    late_s = max(math.inf if o.lateness_s is None else o.lateness_s for o in outcomes)
    figure("the latest call", late_s, unit="s", most=0.03)
    if not closes:
        assert server.connections == 1  # it goes on where the redirect came from


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda path, number: (307, f"/v1/{number}", b""), "it was sent on once already"),
        (lambda path, number: (307, "/b" if path != "/b" else "/v1/completions", b""), "in a circle"),
        (lambda path, number: (308, path, b""), "in a circle"),
        (lambda path, number: (302, "/b", b""), "only 307 and 308"),
    ],
)
def test_further_redirects_and_circles_are_errors_with_a_reason(
    answer: Callable[[str, int], Answer], words: str
) -> None:
    with serving(answer) as server:
        _, outcomes = load(server, 2)
    assert counts(outcomes) == {"redirected": 2}
    assert all(words in (o.detail or "") for o in outcomes)
    assert len(server.seen) <= 4


def test_another_origin_is_asked_only_where_that_is_allowed_and_never_with_secrets() -> None:
    asking = Asking(headers={"api-key": "mine"})
    with serving(lambda path, number: (200, "", BODY)) as other:
        address = f"{other.url}/elsewhere"
        with serving(lambda path, number: (307, address, b"")) as server:
            _, kept = load(server, 1, key="secret", asking=asking)
            assert counts(kept) == {"redirected": 1}
            assert "which redirects='anywhere' allows" in (kept[0].detail or "")
            assert other.seen == []
            log, outcomes = load(server, 2, key="secret", asking=asking, redirects="anywhere")
    assert counts(outcomes) == {"complete": 2}
    assert log.header["redirects"] == "anywhere"
    assert [first for first, _, _ in other.seen] == ["POST /v1/elsewhere HTTP/1.1"] * 2
    assert all("authorization" not in heads and "api-key" not in heads for _, heads, _ in other.seen)
    assert {heads["host"] for _, heads, _ in other.seen} == {f"127.0.0.1:{other.port}"}
    assert b'"prompt":"p0"' in other.seen[0][2]


def test_a_redirect_is_not_followed_where_nobody_wants_it() -> None:
    with serving(slashed) as server:
        _, outcomes = load(server, 1, redirects="never")
    assert counts(outcomes) == {"redirected": 1}
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("address", "became"),
    [
        ("http://127.0.0.1:1/x", "refused"),
        ("http://.x/y", "unreachable"),
        (f"http://{'a' * 64}.x/y", "unreachable"),
        ("http://[::1/x", "redirected"),
    ],
)
@pytest.mark.timeout(120)
def test_where_it_was_sent_on_nobody_may_listen(address: str, became: str) -> None:
    """The call ends by itself: the limits of calls and of the run are longer than this test may last."""
    with serving(lambda path, number: (307, address, b"")) as server:
        _, outcomes = load(server, 1, redirects="anywhere")
    assert list(counts(outcomes)) == [became]
    sent_on = count_warnings([], [o.stream for o in outcomes])
    assert sent_on == ({} if became == "redirected" else {"redirected": 1})


def test_an_address_of_the_sixth_version_is_in_brackets() -> None:
    assert origin_of("http://[::1]:8000/v1").authority == "[::1]:8000"
    assert origin_of("https://one/v1").authority == "one:443"


@pytest.mark.timeout(120)
def test_a_session_goes_on_behind_a_redirect() -> None:
    calls = (
        Call(number=0, prompt="a", output_tokens=3, at_s=0.0),
        Call(number=1, prompt="b", output_tokens=3, after=(0,), carries=True),
    )
    limits = Limits(call_s=200, silence_s=200, run_s=300)
    with serving(slashed) as server:
        log = run_load(server.url, "m", Workload(calls=calls), limits=limits)
    assert counts(outcomes_of(log)) == {"complete": 2}
    assert any(b'"prompt":"a t1 t1 t1 b"' in body for _, _, body in server.seen)


def test_a_call_on_an_idle_connection_that_the_server_closed_is_sent_again_and_counted() -> None:
    """The second request of a connection finds it closed; nothing came back, so it is asked once more."""
    told = Server()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.connections += 1
        for turn in range(2):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            if turn == 1:
                break  # read, and gone without a word
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
                + BODY
            )
            await writer.drain()
        writer.close()

    calls = (
        Call(number=0, prompt="p0", output_tokens=3, at_s=0.0),
        Call(number=1, prompt="p1", output_tokens=3, after=(0,)),
    )
    limits = Limits(call_s=200, silence_s=200, run_s=300)
    with served(talk, told):
        log = run_load(told.url, "m", Workload(calls=calls), limits=limits)
    outcomes = outcomes_of(log)
    assert counts(outcomes) == {"complete": 2}
    assert count_warnings([o.stream for o in outcomes]) == {"resent": 1}
    assert [e.resent for e in log.entries] == [0, 1]
    assert told.connections == 2
