"""Single requests, as the load generator makes its own: straight to the server.

Proxies that the environment names are left aside: what they add would be in no figure of the load generator, which
knows none, and a server on this machine is rarely behind them.
"""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPResponse


def open_directly(
    request: str | urllib.request.Request, *, timeout_s: float, tls: ssl.SSLContext | None = None
) -> HTTPResponse:
    """Send a request and return the answer.

    Raises:
        OSError: There is none, or its status tells an error, as of ``urllib.request``.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    answer: HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)
    return answer
