"""Asks for answers in one piece: servers that count no tokens of a stream may count those of a whole answer.

Nothing here is a measurement.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.load.sending.direct import open_directly
from paceline.families.serving.core.load.sending.target import Target

OF_STREAMS = ("stream", "stream_options")
"""Fields that ask for a stream."""
MOST_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a server counts of one whole answer; None where it does not."""

    prompt_tokens: int | None
    completion_tokens: int | None
    finish: str | None


def count_whole(target: Target, call: Call, headers: Mapping[str, str], *, timeout_s: float) -> Counts | None:
    """Ask for one answer that is not streamed, with the fields that a streamed one would be asked with.

    Args:
        target: The server.
        call: What is asked for.
        headers: Of the request, the key's included.
        timeout_s: Of connecting, and of every wait for bytes.

    Returns:
        None where the server gives no such answer.
    """
    _, _, body = target.request(call, call.prompt).partition(b"\r\n\r\n")
    asked = {name: value for name, value in json.loads(body).items() if name not in OF_STREAMS}
    place = target.place(call)
    scheme = "https" if target.tls is not None else "http"
    request = urllib.request.Request(
        f"{scheme}://{place.origin.authority}{place.path}",
        data=json.dumps(asked).encode(),
        headers={**headers, "Content-Type": "application/json"},
    )
    try:
        with open_directly(request, timeout_s=timeout_s, tls=target.tls) as answer:
            return counts_of(json.loads(answer.read(MOST_BYTES)))
    except (OSError, http.client.HTTPException, ValueError):
        return None


def counts_of(said: Any) -> Counts | None:
    """Return what a whole answer says; None where it is none."""
    if not isinstance(said, dict) or not isinstance(choices := said.get("choices"), list) or not choices:
        return None
    usage, choice = said.get("usage"), choices[0]
    counted = usage if isinstance(usage, dict) else {}
    finish = choice.get("finish_reason") if isinstance(choice, dict) else None
    return Counts(
        prompt_tokens=_whole(counted.get("prompt_tokens")),
        completion_tokens=_whole(counted.get("completion_tokens")),
        finish=finish if isinstance(finish, str) else None,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
