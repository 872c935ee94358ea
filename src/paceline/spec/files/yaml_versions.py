"""Plain scalars that the two versions of YAML read differently.

PyYAML follows YAML 1.1, where ``010`` is 8, ``1:30`` is 90, ``1_000`` is a number and ``no`` is false. YAML 1.2 reads
10, text, text and text. Whoever writes one of these means one of them, and no reader can know which: they are refused.
An exponent alone (``1e-4``) is text in PyYAML and a number in YAML 1.2 and to everybody: it is read as a number.

Source: YAML 1.1 type repository (bool, int, float, merge); YAML 1.2.2, section 10.3, the core schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_INT_1_2 = re.compile(r"[-+]?[0-9]+")
_OCTAL_1_2 = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT_1_2 = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False}
_SIGNED_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a plain scalar is not accepted, and what to write in its place."""

    what: str
    expected: str


def core_float(text: str) -> float | None:
    """Return the number that YAML 1.2 reads in a plain scalar which YAML 1.1 takes for text, or None.

    These are the numbers whose exponent has no sign or whose mantissa has no point, such as ``1e-4`` and ``1.5e3``.
    """
    if _INT_1_2.fullmatch(text) or not _FLOAT_1_2.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def doubt(text: str, read: object) -> Doubt | None:
    """Return what is doubtful about a plain scalar, or None where both versions of YAML agree.

    Args:
        text: The scalar as it stands in the file.
        read: What YAML 1.1 makes of it; the text itself where it makes text of it.
    """
    if isinstance(read, bool):
        if text.lower() in _WORDS:
            return None
        word = "true" if read else "false"
        return Doubt(
            what=f"'{text}' is {word} in YAML 1.1 and text in YAML 1.2",
            expected=f'{word}, or "{text}" as text',
        )
    if isinstance(read, int | float):
        return None if _same_number(text) else _number(text, read)
    if _OCTAL_1_2.fullmatch(text):
        return _octal(text, int(text[2:], 8), "text")
    if _INT_1_2.fullmatch(text):  # 08 and 09: no octal numbers, so text in YAML 1.1
        return _octal(text, int(text), "text")
    return None


def _same_number(text: str) -> bool:
    digits = text.lstrip("+-")
    if _INT_1_2.fullmatch(text):
        return digits == "0" or not digits.startswith("0")
    return bool(_HEX.fullmatch(text) or _FLOAT_1_2.fullmatch(text) or _SIGNED_SPECIAL.fullmatch(text))


def _number(text: str, read: float) -> Doubt:
    if _INT_1_2.fullmatch(text):
        return _octal(text, int(text), f"{read:g}")
    return Doubt(
        what=f"'{text[:40]}' is {read:.15g} in YAML 1.1 and text in YAML 1.2",
        expected=f'{read:.15g}, or "{text[:40]}" as text',
    )


def _octal(text: str, core: int, old: str) -> Doubt:
    shown = text[:40]
    what = f"'{shown}' is {old} in YAML 1.1 and {core} in YAML 1.2"
    if old == str(core):
        what = f"'{shown}' is octal in YAML 1.1 and decimal in YAML 1.2"
    return Doubt(what=what, expected=f'{core}, or "{shown}" as text')
