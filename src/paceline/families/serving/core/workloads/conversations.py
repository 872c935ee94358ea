"""Conversations of other people, with their words: ShareGPT's format, and chats of ``messages``. Free of torch.

A file is one JSON list, or JSON lines, as it is or packed with gzip. An entry that holds no conversation is counted by
its reason and never repaired; a file that is none is told with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.serving.core.workloads.text_files import read_packed_text

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = {
    **{SYSTEM: SYSTEM, "human": USER, USER: USER},
    **{"gpt": ASSISTANT, ASSISTANT: ASSISTANT, "chatgpt": ASSISTANT, "bing": ASSISTANT, "bard": ASSISTANT},
    "model": ASSISTANT,
}
"""Who speaks, by the names that such files have."""
EXPECTED = (
    '[{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}], or "messages"'
)

NO_CONVERSATION, ONE_TURN, NO_TEXT, UNKNOWN_ROLE = "no_conversation", "one_turn", "no_text", "unknown_role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a file."""

    turns: tuple[tuple[str, str], ...] = ()
    """Roles, of the values of ``ROLES``, and words."""
    reason: str | None = None
    """Why it cannot be read: ``no_conversation``, ``one_turn``, ``no_text`` or ``unknown_role``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """A whole file."""

    entries: tuple[Entry, ...]
    """In their order."""
    sha256: str
    """Of the file."""


def read_conversations(path: Path) -> Conversations:
    """Read a file of conversations.

    Raises:
        UserError: There is no such file, it is no list of objects, or no entry of it holds a conversation.
    """
    text, digest = read_packed_text(path, "the conversations")
    entries: list[Entry] = []
    for where, told in _objects(path, text):
        if not isinstance(told, dict):
            raise UserError("not a JSON object", where=where, expected=EXPECTED)
        entries.append(_entry(told))
    if all(e.reason == NO_CONVERSATION for e in entries):
        raise UserError(
            f"none of {number_of(len(entries), 'entry')} has 'conversations' or 'messages'",
            where=str(path),
            expected=EXPECTED,
        )
    return Conversations(entries=tuple(entries), sha256=digest)


def _objects(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield what a list or the lines of a file hold, each with its place."""
    if text.lstrip().startswith("["):
        try:
            told = json.loads(text)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            raise UserError(f"not JSON: {error}", where=f"{path}:{line}", expected=EXPECTED) from error
        yield from ((f"{path}: entry {number}", entry) for number, entry in enumerate(told))
        return
    # Not splitlines: JSON may hold U+2028 and its like, which are no ends of lines there.
    for line, row in enumerate(text.split("\n"), 1):
        if row.strip():
            try:
                yield f"{path}:{line}", json.loads(row)
            except ValueError as error:
                raise UserError(
                    f"not JSON: {error}", where=f"{path}:{line}", expected=f"{EXPECTED}; or one object a line"
                ) from error


def _entry(told: dict[str, Any]) -> Entry:
    said = next((told[k] for k in ("conversations", "messages") if told.get(k) is not None), None)
    if not isinstance(said, list):
        return Entry(reason=NO_CONVERSATION)
    if len(said) < 2:
        return Entry(reason=ONE_TURN)
    turns: list[tuple[str, str]] = []
    for turn in said:
        if not isinstance(turn, dict):
            return Entry(reason=NO_TEXT)
        role, words = turn.get("from", turn.get("role")), _words(turn.get("value", turn.get("content")))
        if not isinstance(role, str) or role not in ROLES:
            return Entry(reason=UNKNOWN_ROLE)
        if words is None or not _is_text(words):
            return Entry(reason=NO_TEXT)
        turns.append((ROLES[role], words))
    return Entry(turns=tuple(turns))


def _is_text(words: str) -> bool:
    """Tell whether words can be sent: JSON may hold halves of characters."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(content: object) -> str | None:
    """Return text, or that of a list whose parts are all text; None of all else, such as images."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return None
    parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in content]
    texts = [p for p in parts if isinstance(p, str)]
    return "".join(texts) if len(texts) == len(parts) else None
