"""Single requests go straight to their server; what may be secret in their headers stays at its origin."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paceline.families.serving.core.load.sending.direct import open_directly

SECRETS = {"Authorization": "Bearer sesame", "X-Api-Key": "sesame"}


@contextlib.contextmanager
def server(seen: list[dict[str, str]], elsewhere: str = "") -> Iterator[str]:
    """Serve; ``/on`` is answered here, ``/here`` is sent on to it, and ``/away`` to another server's."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            to = {"/here": "/on", "/away": f"{elsewhere}/on"}.get(self.path)
            self.send_response(302 if to else 200)
            if to:
                self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


def asked(address: str) -> urllib.request.Request:
    return urllib.request.Request(address, headers={"Accept": "application/json", **SECRETS})


@pytest.mark.parametrize("follows", ["here", "away"])
def test_secrets_are_taken_along_at_their_origin_and_to_no_other(follows: str) -> None:
    own: list[dict[str, str]] = []
    others: list[dict[str, str]] = []
    with (
        server(others) as foreign,
        server(own, foreign) as address,
        open_directly(asked(f"{address}/{follows}"), timeout_s=30) as answer,
    ):
        assert answer.status == 200
    last = (others if follows == "away" else own)[-1]
    assert ("sesame" in str(last)) == (follows == "here")
    assert last["Accept"] == "application/json"
    assert "sesame" in str(own[0])


def test_proxies_of_the_environment_are_left_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with server([]) as address, open_directly(address, timeout_s=30) as answer:
        assert answer.status == 200
