"""What servers say when something went wrong: the sentence inside of the JSON that wraps it."""

from __future__ import annotations

import json
from typing import Any

MAX_REASON = 300
"""Characters of a reason."""
MAX_ERROR_BYTES = 500
"""Of a body that is not JSON, for the reason."""


def shortened(text: str) -> str:
    """Return a reason, with a mark where its end was left out."""
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def error_of(said: dict[str, Any]) -> str | None:
    """Return the error that a JSON object tells of; None where it tells of none.

    ``"error": null`` is none, and so is one that is empty or false. Where an object calls itself an error (``"object":
    "error"`` or ``"type": "error"``), its own message is the reason.
    """
    told = said.get("error")
    if told:
        return _message(told)
    if said.get("object") == "error" or said.get("type") == "error":
        return _message(said)
    return None


def reason_of(body: bytes) -> str:
    """Return the reason that an answer gives which is an error; its first bytes where it is not JSON."""
    try:
        said = json.loads(body)
    except ValueError:
        cut = "…" if len(body) > MAX_ERROR_BYTES else ""
        return body[:MAX_ERROR_BYTES].decode("utf-8", "replace") + cut
    return (error_of(said) if isinstance(said, dict) else None) or _message(said)


def _message(told: object) -> str:
    """Return the text of an error: its ``message``, else what stands there, with its type and code if it has them."""
    if not isinstance(told, dict):
        return shortened(told if isinstance(told, str) else json.dumps(told, ensure_ascii=False))
    text = next((told[k] for k in ("message", "detail", "error") if told.get(k)), None)
    if text is None:
        return shortened(json.dumps(told, ensure_ascii=False))
    kinds = [str(told[k]) for k in ("type", "code") if told.get(k) not in (None, "", "error")]
    words = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return shortened(words + (f" ({', '.join(kinds)})" if kinds else ""))
