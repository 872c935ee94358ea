"""The parameter of a command; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter

LONGEST = 1000


def _wrong(text: str) -> str | None:
    if not text.isprintable() or len(text) > LONGEST:
        return f"an input is one line of at most {LONGEST} characters"
    return None


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="input",
        kind="text",
        doc="What takes the place of {input} in commands and their checks, such as a size or a file.",
        default="",
        form=_wrong,
    ),
)
