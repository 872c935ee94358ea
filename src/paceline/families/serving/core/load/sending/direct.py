"""Single requests, as the load generator makes its own: straight to the server.

Proxies that the environment names are left aside: what they add would be in no figure of the load generator, which
knows none, and a server on this machine is rarely behind them. A server that sends a request on to another origin does
not take its headers there: keys are among them.
"""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPMessage, HTTPResponse
from typing import IO
from urllib.parse import urlsplit

PLAIN = ("Accept", "Content-type")
"""Headers that any server may read, as urllib writes them."""


class _OwnOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirects, as urllib does, and leaves headers that may hold secrets at the origin that they are for."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        onward = super().redirect_request(req, fp, code, msg, headers, newurl)
        if onward is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            onward.headers = {name: value for name, value in onward.headers.items() if name in PLAIN}
        return onward


def open_directly(
    request: str | urllib.request.Request, *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> HTTPResponse:
    """Send a request and return the answer.

    Raises:
        OSError: There is none, or its status tells an error, as of ``urllib.request``.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _OwnOrigin()]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    answer: HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    return answer
