"""Servers of the OpenAI interface as others write them: each lacks, refuses or renames something."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class Manners:
    """How a server behaves."""

    models: tuple[str, ...] = ("tiny",)
    lists_models: bool = True
    base: str = "/v1"
    chat: bool = True
    completions: bool = True
    refuses: tuple[str, ...] = ()
    """Fields that end a request with 422."""
    key: str | None = None
    usage: bool = True
    """Whether it counts the tokens of streams."""
    counts_whole: bool = True
    """Whether it counts those of answers in one piece."""
    cap: int | None = None
    """Most tokens of an answer, whatever was asked for; it ends as at a limit."""
    per_event: int = 1
    """Tokens of an event."""
    tokens_per_word: float = 1.0
    template: int = 0
    """Tokens that it puts around a prompt."""
    first_s: float = 0.0
    gap_s: float = 0.0
    status: int | None = None
    """Status of every request for tokens."""
    dies_after: int | None = None
    """Requests for tokens after which it answers none, and takes no connection."""
    version: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    certificate: tuple[Path, Path] | None = None


@dataclass
class Running:
    """A server under way."""

    url: str
    manners: Manners
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the requests for tokens."""
    heads: list[dict[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def serving(manners: Manners) -> Iterator[Running]:
    """Serve for the length of a ``with``."""
    running = Running("", manners)

    class Handler(_Handler):
        state = running

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in manners.host else socket.AF_INET

    server = Server((manners.host, manners.port), Handler)
    if manners.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*manners.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if manners.certificate else "http"
    host = f"[{manners.host}]" if ":" in manners.host else manners.host
    running.url = f"{scheme}://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that nobody else vouches for, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    asked = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=127.0.0.1",
    ]
    asked += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *asked], check=True, capture_output=True)
    return certificate, key


class _Handler(BaseHTTPRequestHandler):
    state: Running
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        manners = self.state.manners
        if self.path == "/version" and manners.version:
            return self._json(200, {"version": manners.version})
        if self.path == "/metrics" and manners.version:
            number = len(self.state.asked)
            text = (
                f'stub:time_to_first_token_seconds_sum{{model="a"}} {0.25 * number}\n'
                f'stub:time_to_first_token_seconds_count{{model="a"}} {number}\nstub:tokens_total {7 * number}\n'
                "stub:running 3\n"
            )
            return self._send(200, text.encode(), "text/plain")
        if not self._may_enter():
            return self._json(401, {"error": {"message": "no valid key"}})
        if self.path == f"{manners.base}/models" and manners.lists_models:
            return self._json(200, {"object": "list", "data": [{"id": m} for m in manners.models]})
        return self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        manners, state = self.state.manners, self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may_enter():
            return self._json(401, {"error": {"message": "no valid key"}})
        chat = self.path == f"{manners.base}/chat/completions" and manners.chat
        if not chat and not (self.path == f"{manners.base}/completions" and manners.completions):
            return self._json(404, {"detail": "Not Found"})
        if body["model"] not in manners.models:
            return self._json(404, {"error": {"message": f"the model {body['model']} does not exist"}})
        for name in manners.refuses:
            if name in body:
                return self._json(422, {"detail": f"unexpected field {name}"})
        state.asked.append(body)
        state.heads.append(dict(self.headers))
        if manners.status is not None:
            return self._json(manners.status, {"error": {"message": "too busy"}})
        if manners.dies_after is not None and len(state.asked) > manners.dies_after:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        return self._stream(body, chat) if body.get("stream") else self._whole(body, chat)

    def _may_enter(self) -> bool:
        key = self.state.manners.key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def _stream(self, body: dict[str, Any], chat: bool) -> None:
        manners = self.state.manners
        tokens = self._tokens(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number in range(0, tokens, manners.per_event):
            time.sleep(manners.gap_s if number else manners.first_s)
            said = "".join(f"w{n} " for n in range(number, min(number + manners.per_event, tokens)))
            choice = {"delta": {"content": said}} if chat else {"text": said}
            self._event({"choices": [{"index": 0, **choice, "finish_reason": None}]})
        end = {"delta": {}} if chat else {"text": ""}
        self._event({"choices": [{"index": 0, **end, "finish_reason": "length"}]})
        if manners.usage and "stream_options" in body:
            self._event({"choices": [], "usage": self._usage(body, tokens)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _whole(self, body: dict[str, Any], chat: bool) -> None:
        tokens = self._tokens(body)
        said = "".join(f"w{n} " for n in range(tokens))
        choice = {"message": {"role": "assistant", "content": said}} if chat else {"text": said}
        answer: dict[str, Any] = {"choices": [{"index": 0, **choice, "finish_reason": "length"}]}
        if self.state.manners.counts_whole:
            answer["usage"] = self._usage(body, tokens)
        self._json(200, answer)

    def _tokens(self, body: dict[str, Any]) -> int:
        asked = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        return asked if self.state.manners.cap is None else min(asked, self.state.manners.cap)

    def _usage(self, body: dict[str, Any], tokens: int) -> dict[str, int]:
        manners = self.state.manners
        prompt = body["prompt"] if "prompt" in body else " ".join(m["content"] for m in body["messages"])
        count = round(len(prompt.split()) * manners.tokens_per_word) + manners.template
        return {"prompt_tokens": count, "completion_tokens": tokens, "total_tokens": count + tokens}

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, data: Any) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":  # PORT FIRST_S: serve there, so slowly, until somebody ends it
    with serving(Manners(first_s=float(sys.argv[2]), gap_s=0.002, port=int(sys.argv[1]))):
        threading.Event().wait()
