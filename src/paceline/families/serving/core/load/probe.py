"""Finds out how a server wants to be asked, by asking it: its base, its models, its interface, the fields it refuses.

Every answer is the server's own. What is tried is told in order, so that an error says what was tried and what came.
Nothing here is a measurement.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from paceline.base.counting import number_of
from paceline.base.errors import InfrastructureError, PacelineError, UserError
from paceline.families.serving.core.load.log.outcomes import Outcome
from paceline.families.serving.core.load.log.reasons import reason_of
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.direct import open_directly
from paceline.families.serving.core.load.trials import Access, Api, Counting, Trials

APIS: tuple[Api, ...] = ("completions", "chat")
TIMEOUT_S = 10.0
MOST_NAMED = 12
BUSY = re.compile(r"status: (429|5\d\d)\b")
"""Statuses of servers that may answer later."""
ABSENT = re.compile(r"status: 40[45]\b")
"""Statuses of servers that have no such address."""
REFUSALS = (400, 422)
"""Statuses of servers that do not know a field."""


class ServerError(UserError):
    """A server cannot be measured as it was asked for."""


class BusyServerError(InfrastructureError):
    """A server refuses all requests for now; the same command may succeed later."""


class UnreachableServerError(InfrastructureError):
    """Nobody answers at an address; the same command may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What was found out."""

    url: str
    """Address below which ``/completions`` and ``/chat/completions`` lie."""
    model: str
    api: Api
    leave_out: tuple[str, ...]
    rename: Mapping[str, str]
    counting: Counting
    says: Mapping[str, Any]
    """Of itself: ``server``, ``version``, ``owned_by``, ``max_model_len``, ``models``."""


def find_server(
    url: str,
    access: Access,
    *,
    model: str | None = None,
    apis: Sequence[Api] = APIS,
    asking: Asking | None = None,
) -> Server:
    """Find out how a server wants to be asked.

    Args:
        url: As a person writes it, with or without ``/v1``.
        access: Key, headers, authorities.
        model: Its name; None takes the only one that there is.
        apis: Interfaces that are tried, in this order.
        asking: Fields that a person left out, renamed or added.

    Raises:
        ServerError: The address is none, the key is wrong, there is no such model, or no request is answered.
        UnreachableServerError: Nobody answers there.
        BusyServerError: It answers, and refuses all requests for now.
    """
    check_address(url)
    bases, listed, head, unlisted = _bases(url, access)
    chosen = _model(bases[0], listed, model, unlisted)
    asking = asking or Asking()
    refused: list[str] = []
    for base, api in ((base, api) for base in bases for api in apis):
        for tried in _ways(asking):
            trials = Trials(base=base, model=chosen, api=api, asking=tried, access=access)
            outcome = trials.stream(words=8)
            if outcome.ok:
                return _found(trials, listed, head)
            refused.append(f"{base}, {api}{_without(tried, asking)}: {outcome.kind}: {outcome.detail}")
            if not _may_be_a_field(outcome):
                break
    raise _no_answer(bases[0], refused, access)


def check_address(url: str) -> None:
    """Check the address of a server.

    Raises:
        ServerError: It is none, or holds a secret.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no address of IPv6
        parts = urlsplit("")
    named = re.fullmatch(r"[\w.\-:%]+", parts.hostname or "") is not None
    if parts.scheme in ("http", "https") and named:
        try:
            port = parts.port
        except ValueError as error:
            raise ServerError(
                f"the address has no port that can be: {error}", where=url, expected="a port from 1 to 65535"
            ) from error
        if parts.username or parts.password or parts.query:
            raise ServerError(
                "the address holds a key or a query, which records would show",
                where=urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
                expected="an address alone",
                fix="export OPENAI_API_KEY=…; --key-header=NAME where the server wants it in another header",
            )
        del port
        return
    bare = _bracketed(url.removeprefix("//"))
    raise ServerError(
        "it is no address of a server",
        where=url,
        expected="http://HOST:PORT or https://HOST, with /v1 or without; IPv6 as http://[::1]:8000",
        fix=f"paceline load http://{bare}" if re.match(_BARE, bare) else None,
    )


_BARE = r"(?!\w+:/)([\w.\-]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[^\s/]\S*)?/?$"
"""An address without a scheme."""


def _bracketed(bare: str) -> str:
    """Return an address of IPv6 in brackets, as addresses of servers have it."""
    return f"[{bare}]" if re.fullmatch(r"[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*", bare) else bare


def _bases(url: str, access: Access) -> tuple[list[str], list[dict[str, Any]] | None, Mapping[str, str], str]:
    """Return where the interface may lie, the server's models where it lists them, and the headers of that answer.

    The last is what was answered where it lists none.
    """
    plain = url.rstrip("/")
    bases = [plain] if plain.endswith("/v1") else [f"{plain}/v1", plain]
    answered = ""
    for base in bases:
        status, body, head = _get(f"{base}/models", access)
        if status in (401, 403):
            raise _no_entry(base, status, body, access)
        if status == 200 and (listed := _listed(body)) is not None:
            return [base], listed, head, ""
        answered = answered or f"status {status}: {reason_of(body)}"
    return bases, None, {}, answered


def _get(address: str, access: Access) -> tuple[int, bytes, Mapping[str, str]]:
    """Return status, body and headers of an answer.

    Raises:
        UnreachableServerError: There is none.
        ServerError: The connection cannot be secured.
    """
    request = urllib.request.Request(address, headers=access.head())
    try:
        context = access.tls.context() if address.startswith("https") else None
        with open_directly(request, timeout_s=TIMEOUT_S, tls=context) as answer:
            return answer.status, answer.read(4_000_000), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(100_000), dict(error.headers or {})
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            raise _not_secured(address, error.reason) from error
        raise _unreachable(address, error.reason) from error
    except ssl.SSLError as error:
        raise _not_secured(address, error) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreachable(address, error) from error


def _listed(body: bytes) -> list[dict[str, Any]] | None:
    """Return the models of an answer; None where it is no list of them."""
    try:
        told = json.loads(body)
    except ValueError:
        return None
    models = told.get("data", told.get("models")) if isinstance(told, dict) else told
    if not isinstance(models, list):
        return None
    found = [m if isinstance(m, dict) else {"id": m} for m in models]
    return [m | {"id": str(m.get("id", m.get("name", "")))} for m in found]


def _model(base: str, listed: list[dict[str, Any]] | None, asked: str | None, unlisted: str) -> str:
    names = [m["id"] for m in listed or [] if m["id"]]
    if asked is not None and (not names or asked in names):
        return asked
    if asked is None and len(names) == 1:
        return str(names[0])
    shown = ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)
    )
    if asked is not None:
        raise ServerError(
            f"the server has no model '{asked}'", where=f"{base}/models", expected=f"one of: {shown}"
        )
    raise ServerError(
        f"the server has {number_of(len(names), 'model')}"
        if names
        else f"the server lists no models{unlisted and f' ({unlisted})'}",
        where=f"{base}/models",
        expected=f"the name of one: {shown}" if names else "the name of its model",
        fix=f"paceline load {base} --model {names[0] if names else 'NAME'}",
    )


def _ways(asking: Asking) -> Iterator[Asking]:
    """Yield ways to ask: as asked for, then without what servers refuse most often, alone and together."""
    yield asking
    optional = [n for n in ("ignore_eos", "stream_options") if n not in (*asking.leave_out, *asking.extra)]
    sets = [(n,) for n in optional] + ([tuple(optional)] if len(optional) > 1 else [])
    for names in sets:
        yield replace(asking, leave_out=(*asking.leave_out, *names))
    if "max_tokens" not in (*asking.rename, *asking.leave_out):
        renamed = {**asking.rename, "max_tokens": "max_completion_tokens"}
        for names in [("ignore_eos",), tuple(optional), (*optional, "temperature")]:
            left = tuple(dict.fromkeys((*asking.leave_out, *names)))
            yield replace(asking, leave_out=left, rename=renamed)


def _may_be_a_field(outcome: Outcome) -> bool:
    """Tell whether an answer may be about a field of the request: then another way to ask is worth a try."""
    said = outcome.detail or ""
    refused = outcome.kind == "status" and any(re.search(rf"\b{code}\b", said) for code in REFUSALS)
    return refused or outcome.kind == "overlong"  # which may know max_tokens by its other name


def _without(tried: Asking, asking: Asking) -> str:
    left = [n for n in tried.leave_out if n not in asking.leave_out]
    other = [f"{old} as {new}" for old, new in tried.rename.items() if old not in asking.rename]
    return (f" without {', '.join(left)}" if left else "") + (f" with {', '.join(other)}" if other else "")


def _found(trials: Trials, listed: list[dict[str, Any]] | None, head: Mapping[str, str]) -> Server:
    says: dict[str, Any] = {"models": len(listed)} if listed is not None else {}
    lowered = {name.lower(): value for name, value in head.items()}
    if "server" in lowered:
        says["server"] = lowered["server"]
    about = next((m for m in listed or [] if m["id"] == trials.model), {})
    says |= {k: about[k] for k in ("owned_by", "max_model_len", "root") if about.get(k) is not None}
    if (version := _version(trials.base, trials.access)) is not None:
        says["version"] = version
    return Server(
        url=trials.base,
        model=trials.model,
        api=trials.api,
        leave_out=trials.asking.leave_out,
        rename=dict(trials.asking.rename),
        counting=trials.counting(),
        says=says,
    )


def _version(base: str, access: Access) -> str | None:
    """Return what the server says at ``/version`` (vLLM, SGLang's and others' servers have it)."""
    try:
        status, body, _ = _get(f"{base.removesuffix('/v1')}/version", access)
        told = json.loads(body) if status == 200 else None
    except (UserError, InfrastructureError, ValueError):
        return None
    return str(told.get("version")) if isinstance(told, dict) and told.get("version") else None


def _no_entry(base: str, status: int, body: bytes, access: Access) -> ServerError:
    given = f"the key in {access.key_variable} is refused" if access.key else "the server wants a key"
    return ServerError(
        f"{given}: status {status}: {reason_of(body)}",
        where=base,
        expected=f"a key of this server in the variable {access.key_variable}",
        fix=f"export {access.key_variable}=…",
    )


def _not_secured(address: str, error: ssl.SSLError) -> ServerError:
    return ServerError(
        f"the connection cannot be secured: {error}",
        where=address,
        expected="a certificate that the system's authorities vouch for",
        fix="--authorities=FILE.pem for a server's own authority; --no-verify to trust whoever answers",
    )


def _unreachable(address: str, reason: object) -> UnreachableServerError:
    parts = urlsplit(address)
    return UnreachableServerError(
        f"{parts.scheme}://{parts.netloc}: nobody answers: {reason}\n"
        "  expected: a server of the OpenAI interface at this address\n"
        f"  fix: curl {address}"
    )


def _no_answer(base: str, refused: Sequence[str], access: Access) -> PacelineError:
    if any(re.search(r"\b(401|403)\b", text) for text in refused):
        return _no_entry(base, 401, refused[-1].encode(), access)
    tried = "".join(f"\n    {text}" for text in refused)
    # the other interface may not be there at all, which says nothing of this one
    known = [text for text in refused if not ABSENT.search(text)]
    if known and all(BUSY.search(text) for text in known):
        return BusyServerError(
            f"{base}: the server completes no request:{tried}\n"
            "  expected: a streamed answer; status 429 and those from 500 on may pass\n"
            "  fix: the same command again, when the server has answered somebody"
        )
    if any(": overlong: " in text for text in refused):
        return ServerError(
            f"the server writes more tokens than max_tokens:{tried}",
            where=base,
            expected="answers of at most as many tokens as are asked for",
            fix="--rename=max_tokens=NAME, or --leave-out=max_tokens for answers of any length",
        )
    return ServerError(
        f"the server completes no request:{tried}",
        where=base,
        expected="a streamed answer at /completions or /chat/completions",
        fix="--api, --leave-out, --rename or --extra, as the server's message says",
    )
