"""A server's address, and calls as the bytes of HTTP/1.1 requests of the OpenAI interface."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from paceline.families.serving.core.load.calls import Call, Messages, Prompt, prompt_text
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.redirects import Follow, Origin, Place, origin_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a server of HTTPS is known."""

    authorities: str | None = None
    """File of the authorities that may vouch for it, in PEM; None: the system's."""
    verify: bool = True
    """Whether its certificate is checked; without that anybody could answer in its place."""

    def context(self) -> ssl.SSLContext:
        """Return what connections are secured by.

        Raises:
            OSError: The file cannot be read, or holds no certificate.
        """
        context = ssl.create_default_context(cafile=self.authorities)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where calls go."""

    host: str
    port: int
    base: str
    """Path below which ``/completions`` and ``/chat/completions`` lie, such as ``/v1``."""
    model: str
    """The model's name at the server."""
    tls: ssl.SSLContext | None = None
    key: str | None = field(default=None, repr=False)
    """Bearer token; it is in no log."""
    asking: Asking = field(default_factory=Asking)
    """Which fields and headers are left out, renamed or added."""
    as_text: bool = False
    """Whether token ids are sent as words, to servers that take text alone."""
    redirects: Follow = "same-origin"
    """Which redirects are followed."""

    @property
    def origin(self) -> Origin:
        """Return its scheme, host and port."""
        return Origin(self.host, self.port, self.tls is not None)

    @classmethod
    def of(
        cls,
        url: str,
        model: str,
        *,
        key: str | None = None,
        as_text: bool = False,
        asking: Asking | None = None,
        redirects: Follow = "same-origin",
        tls: Tls | None = None,
    ) -> Target:
        """Read an address such as ``http://127.0.0.1:8000/v1``.

        Raises:
            ValueError: It is no address of HTTP.
            OSError: The file of authorities cannot be read.
        """
        origin = origin_of(url)
        return cls(
            host=origin.host,
            port=origin.port,
            base=urlsplit(url).path.rstrip("/"),
            model=model,
            tls=(tls or Tls()).context() if origin.secure else None,
            key=key,
            as_text=as_text,
            asking=asking or Asking(),
            redirects=redirects,
        )

    def request(self, call: Call, prompt: Prompt) -> bytes:
        """Return a call's request, ready to be sent.

        Args:
            call: What is asked for.
            prompt: Its whole prompt, with what it carries on from.
        """
        usual: dict[str, Any] = {
            "model": self.model,
            "max_tokens": call.output_tokens,
            "temperature": 0,
            # An extension of serving engines, not of the interface: answers have the lengths that were asked for, and
            # so equal work.
            "ignore_eos": True,
            "stream": True,
            # The server's own count, against which what came is held.
            "stream_options": {"include_usage": True},
        }
        if call.tenant:
            usual["user"] = call.tenant
        asked = self.asking.fields(usual)
        if call.chat:
            turns = prompt.turns if isinstance(prompt, Messages) else (("user", prompt_text(prompt)),)
            asked["messages"] = [{"role": role, "content": text} for role, text in turns]
        else:
            ids = isinstance(prompt, tuple) and not self.as_text
            asked["prompt"] = prompt if ids else prompt_text(prompt)
        return self._post(self.place(call), json.dumps(asked, separators=(",", ":")).encode())

    def place(self, call: Call) -> Place:
        """Return where a call goes."""
        return Place(self.origin, f"{self.base}/{'chat/completions' if call.chat else 'completions'}")

    def sent_on(self, request: bytes, place: Place) -> bytes:
        """Return a request as it goes to where it was sent on; secrets stay where they belong."""
        return self._post(place, request.partition(b"\r\n\r\n")[2])

    def _post(self, place: Place, body: bytes) -> bytes:
        own = place.origin == self.origin
        secret = f"Authorization: Bearer {self.key}\r\n" if self.key and own else ""
        head = (
            f"POST {place.path} HTTP/1.1\r\nHost: {place.origin.authority}\r\n"
            f"Accept: text/event-stream\r\n{secret}{self.asking.head() if own else ''}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("latin-1") + body
