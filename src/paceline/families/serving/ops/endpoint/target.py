"""One side of a comparison of servers: its address and what is said of it in a suite's options. Free of torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.units import parse_duration
from paceline.families.serving.core.load.exact_words import ExactWords
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.target import Tls
from paceline.families.serving.core.load.words import Wording
from paceline.families.serving.core.mock.behaviour import Behaviour, Gaps
from paceline.families.serving.core.workloads.text_tokens import Tokenizer, load_tokenizer

MOCK = "mock:"
"""Begins the address of a server of known truth that the harness starts itself: ``mock:first=50ms,gap=10ms``."""
MOCK_KEYS = ("first", "gap", "places")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A server and how it is asked; see the options of the technique ``openai-server``."""

    url: str
    model: str
    chat: bool
    asking: Asking
    length_counts: bool
    """Whether it counts no tokens of streams, and as many as were asked for came where it ended at the limit."""
    wording: Wording
    tokenizer: Tokenizer | None = field(default=None, repr=False)
    """By which prompts have exactly the asked tokens."""
    tls: Tls = field(default_factory=Tls)
    start: str = ""
    stop: str = ""
    folder: str = ""
    """Where both commands are called; empty for the process's own."""
    ready_s: float = 600.0
    key_variable: str = "OPENAI_API_KEY"
    key_header: str = ""
    """Header that takes the key; empty for ``Authorization: Bearer``."""

    @property
    def mock(self) -> Behaviour | None:
        """Return what a mock server does; None where the server is somebody else's."""
        return mock_of(self.url) if self.url.startswith(MOCK) else None


def side_of(options: Mapping[str, Any]) -> Side:
    """Read a technique's options.

    Raises:
        ValueError: One cannot be read; the text says which.
        PrerequisiteError: The package that reads the tokenizer is not installed.
        UserError: The tokenizer is not there, or cannot be read.
    """
    leave_out = tuple(name for name in str(options["leave_out"]).split(",") if name)
    pairs = [item.partition("=") for item in str(options["rename"]).split(",") if item]
    asking = Asking(
        leave_out=leave_out,
        rename={old: new for old, _, new in pairs},
        extra=_object(options, "extra"),
        headers={str(name): str(value) for name, value in _object(options, "headers").items()},
    )
    folder = str(options["tokenizer"])
    tokenizer = load_tokenizer(Path(folder)) if folder else None
    return Side(
        url=str(options["url"]),
        model=str(options["model"]),
        chat=options["api"] == "chat",
        asking=asking,
        length_counts=bool(options["length_counts"]),
        wording=Wording(
            tokens_per_word=float(options["tokens_per_word"]),
            added_tokens=float(options["added_tokens"]),
            exact=None if tokenizer is None else ExactWords(tokenizer.count),
        ),
        tokenizer=tokenizer,
        tls=Tls(authorities=str(options["authorities"]) or None, verify=bool(options["verify"])),
        start=str(options["start"]),
        stop=str(options["stop"]),
        folder=str(options["folder"]),
        ready_s=parse_duration(str(options["ready"])),
        key_variable=str(options["key_variable"]),
        key_header=str(options["key_header"]),
    )


def _object(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        read = json.loads(str(options[name]) or "{}")
    except ValueError as error:
        raise ValueError(f"{name} {options[name]!r} is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{name} {options[name]!r} is no JSON object")
    return read


def mock_of(url: str) -> Behaviour:
    """Read the address of a mock server.

    Raises:
        ValueError: It says something that is no key, or no duration.
    """
    given: dict[str, Any] = {}
    for item in url.removeprefix(MOCK).split(","):
        if not item:
            continue
        key, separator, value = item.partition("=")
        if key not in MOCK_KEYS or not separator:
            raise ValueError(f"'{item}' in '{url}'; expected {MOCK}{','.join(f'{k}=…' for k in MOCK_KEYS)}")
        given[key] = int(value) if key == "places" else Gaps(mean_s=parse_duration(value))
    return Behaviour(**given)
