"""What must never enter a record: values whose name says that they are secret, credentials in URLs, home folders.

Used where text from outside becomes part of a record; free of dependencies outside, since the worker needs it too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.base.account import home_folder

HIDDEN = "…"
_WORDS = "token|secret|pass|key|cred|auth|cookie|signature"
_SECRET = re.compile(_WORDS, re.IGNORECASE)
# Each name is looked at once, from its beginning: a word in the text of a program may have a million letters.
_URL_USER = re.compile(r"(?<!\w)(\w++://)[^/\s@]+@")
_URL_QUERY = re.compile(rf"([?&](?=[\w.-]*?(?:{_WORDS}))[\w.-]++=)[^&#\s]+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""((?<![\w-])(?=[\w-]*?(?:token|secret|passw|api_?key|credential))[\w-]++["']?[ \t]*+[:=][ \t]*)"""
    r"""(["'][^"'\n]+["']|[^\s"'()\[\]{},]{8,}$)""",
    re.IGNORECASE | re.MULTILINE,
)
_BEARER = re.compile(r"\b(bearer\s+)\S+", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Tell whether the name of a variable or an option says that its value is secret."""
    return _SECRET.search(name) is not None


def redact(text: str) -> str:
    """Replace the home folder and credentials inside URLs and headers."""
    home = str(home_folder() or "")
    if len(home) > 1:
        text = text.replace(home, "~")
    text = _URL_USER.sub(rf"\1{HIDDEN}@", text)
    text = _URL_QUERY.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1{HIDDEN}", text)


def redact_source(text: str) -> str:
    """Replace, in source text, also literals that are assigned to a name that says that they are secret."""
    return _ASSIGNED.sub(rf"\1{HIDDEN}", redact(text))


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line without home paths, credentials, or values of options that name a secret."""
    cleaned: list[str] = []
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = names_a_secret(name) and "/" not in name
        if hide:
            cleaned.append(HIDDEN)
        elif equals and secret:
            cleaned.append(f"{name}={HIDDEN}")
        else:
            cleaned.append(redact(argument))
        hide = not hide and not equals and secret and argument.startswith("-")
    return cleaned
