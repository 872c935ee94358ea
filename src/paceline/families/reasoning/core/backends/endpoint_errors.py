"""What can go wrong with an endpoint: each error says what, at which address, what was expected, and what mends it.

Neither keys nor passwords are ever part of one.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from paceline.base.errors import UserError

MAX_SAID = 300
"""Characters of what a server says that are passed on."""


class EndpointError(UserError):
    """An endpoint did not do what it was asked for."""


class UnreachableError(EndpointError):
    """No connection, or nothing within the time."""


class RefusedError(EndpointError):
    """The server does not do this: a wrong key, an unknown model, a request that it does not know."""


class OverloadedError(EndpointError):
    """The server had no capacity, or failed, as often as it was tried."""


class MalformedAnswerError(EndpointError):
    """The server answers in another way than the interface says."""


def bare_url(url: str) -> str:
    """Return an address without user, password and query.

    Raises:
        UserError: It is no address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            "it is no address of a server",
            where="the endpoint",
            expected="http://HOST:PORT/v1 or https://HOST/v1",
            fix="give the address below which /completions lies",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return urlunsplit((parts.scheme, host + (f":{parts.port}" if parts.port else ""), parts.path, "", ""))


def said(text: str, key: str) -> str:
    """Return what a server says in one line, short and without the key."""
    line = " ".join(text.split())
    # The key goes before the text is cut, or a cut through it would leave its beginning.
    return (line.replace(key, "[key]") if key else line)[:MAX_SAID]


def of_status(status: int, message: str, url: str) -> EndpointError:
    """Return the error of a status that was not retried, or not with success."""
    if status == 429 or status >= 500:
        return OverloadedError(
            f"status {status} again and again: {message}",
            where=url,
            expected="capacity for this many streams",
            fix="give a smaller limit or more retries, or look at the server's log",
        )
    fixes = {
        401: "set OPENAI_API_KEY to a key of this server",
        403: "set OPENAI_API_KEY to a key that may use the model",
        404: "check the address, which ends in /v1 mostly, and the model's name at its /models",
    }
    return RefusedError(
        f"status {status}: {message}",
        where=url,
        expected="a server that completes this model's texts at /completions, with logprobs, a seed and a stream",
        fix=fixes.get(
            status, "see what the server says; fewer top logprobs or a smaller context may be asked for"
        ),
    )
