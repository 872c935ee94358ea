r"""What may reach a terminal: texts of records and suites are other people's, and may hold its escape codes.

All output of the command line goes through here. Control characters are shown as ``\u001b``, which also is how JSON
writes them, and so is what the terminal's encoding lacks: nothing is lost, and nothing ends in a traceback.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
from typing import Any, TextIO, cast

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)")
"""Control characters but tab and line ends, what turns the direction of writing round, and halves of characters."""
ESCAPES = "paceline-escapes"
"""The error handler of streams."""


def harmless(text: str) -> str:
    """Return a text with its control characters as escapes of JSON."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks as JSON does, in two halves where it is beyond 16 bits."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    data = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2)), error.end


class Guarded:
    """A stream that shows control characters instead of obeying them.

    Args:
        stream: Where the text goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self.unguarded.write(harmless(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __iter__(self) -> Any:
        return iter(self.unguarded)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_streams() -> None:
    """Guard standard output and standard error of this process, and let them write every character."""
    codecs.register_error(ESCAPES, _escaped)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:  # not what a test puts there
            plain = codecs.lookup(stream.encoding).name == "ascii"  # nobody chose it
            stream.reconfigure(encoding="utf-8" if plain else None, errors=ESCAPES)
            setattr(sys, name, Guarded(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream behind a guarded one, for what draws with escape codes itself, such as a progress bar."""
    return cast(TextIO, getattr(stream, "unguarded", stream))
