"""Which fields and headers a request has: servers refuse some that others need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPTIONAL = ("ignore_eos", "max_tokens", "model", "stream_options", "temperature", "user")
"""Fields that can be left out."""
RENAMED = ("max_tokens", "user")
"""Fields that can have another name, such as ``max_completion_tokens``."""
OWN_FIELDS = ("messages", "prompt", "stream")
"""Fields that the client writes itself."""
OWN_HEADERS = ("accept", "content-length", "content-type", "host", "transfer-encoding")
"""Headers that the client writes itself."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What of a request is not as usual.

    Without ``ignore_eos`` a model may end before the tokens that were asked for: read outcomes with ``exact=False``.

    Raises:
        ValueError: A field cannot be left out or renamed, is named twice, or a header is none that can be added.
    """

    leave_out: tuple[str, ...] = ()
    """Of ``OPTIONAL``."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Usual name (of ``RENAMED``) → name that is sent."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, or other values of usual ones, by the names that are sent."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers; a log holds their names alone, since values may be secrets."""

    def __post_init__(self) -> None:
        """Check names."""
        _known("left out", self.leave_out, OPTIONAL)
        _known("renamed", self.rename, RENAMED)
        for name in self.leave_out:
            if name in self.rename:
                raise ValueError(f"'{name}' is left out and renamed; expected one of both")
        for name in (*self.extra, *self.rename.values()):
            if name in OWN_FIELDS:
                raise ValueError(f"field '{name}' is the client's own; it cannot be set")
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ValueError(f"header {name!r} has characters that no header may have")
            if name.lower() in OWN_HEADERS:
                raise ValueError(f"header '{name}' is the client's own; it cannot be set")

    def fields(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a request that usually has these."""
        kept = {self.rename.get(k, k): v for k, v in usual.items() if k not in self.leave_out}
        return {**kept, **self.extra}

    def head(self) -> str:
        """Return the further headers as lines."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())

    def facts(self) -> dict[str, Any]:
        """Return what a log says of it: everything but headers' values; nothing where all is as usual."""
        told = {
            "left_out": sorted(self.leave_out),
            "renamed": dict(self.rename),
            "extra": dict(self.extra),
            "headers": sorted(self.headers),
        }
        return {key: value for key, value in told.items() if value}


def _known(what: str, names: Mapping[str, str] | tuple[str, ...], choices: tuple[str, ...]) -> None:
    for name in names:
        if name not in choices:
            raise ValueError(f"'{name}' cannot be {what}; expected one of {', '.join(choices)}")
