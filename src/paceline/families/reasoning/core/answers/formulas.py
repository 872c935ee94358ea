r"""Formulas as text: written in one of the ways that mean the same, and what of two of them needs no mathematics.

No formula is simplified here. What is decided: equal text is equal; numbers in a stated base equal only the same digits
in the same base; words are compared as words; an ordered pair is no set; where both state a unit of measure they have
to be the same; two exact values are equal only if they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from paceline.families.reasoning.core.answers.characters import REWRITTEN, normal_characters
from paceline.families.reasoning.core.answers.exact_values import exact_value
from paceline.families.reasoning.core.answers.numbers import TEXT, number_text, whole_number
from paceline.families.reasoning.core.answers.places import last_boxed
from paceline.families.reasoning.core.answers.words import SCALES, UNITS

MAX_FORMULA = 500
"""Characters of a formula; longer ones are no answers, and parsers take minutes over them."""
MAX_EXACT_PLACES = 5
"""Of decimals that are exact beside a fraction; longer ones may be its rounded value."""
MIN_ROUNDED_DIGITS = 6
"""Significant digits of a decimal that may stand for a fraction: 0.333333 for 1/3."""
MAX_VALUE_LETTERS = 40
"""Of an exact value that votes compare in the place of its formula."""

_SCALE = "|".join(sorted(map(re.escape, SCALES), key=len, reverse=True))
_UNIT_WORDS = "|".join(sorted((re.escape(u) for u in UNITS if len(u) > 1), key=len, reverse=True))
_TRAILING = re.compile(
    r"(?P<core>.*?[0-9a-zA-Z})!])?\s*(?:\\text\s*\{\s*(?P<text>[^{}]*?)\s*\}|(?P<bare>(?<=[0-9}) ])(?:"
    rf"(?:square |cubic |sq )?(?:{_UNIT_WORDS})(?:\s*/\s*(?:{_UNIT_WORDS}|h|s))?|(?:{_SCALE})(?: [a-z]+)?)))"
    r"\s*(?:\^\s*\{?\s*(?P<power>-?[123])\s*\}?|(?P<raised>[²³]))?"
)
_LETTER_UNIT = re.compile(r"(?P<core>[0-9.,/]*[0-9]) (?P<unit>[mgshlLJNW])(?:\^\{?(?P<power>[23])\}?)?")
_DEGREES = re.compile(r"(?P<core>.+?)(?:\^\{?\\circ\}?|°|\\degree|\\textdegree)")
_MONEY = re.compile(r"(?P<sign>\\\$|[€£])\s*(?P<core>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A formula and the unit of measure beside it."""

    core: str
    unit: str | None
    """Its one name; None where it states none that is told apart."""


def tidy(formula: str) -> str:
    """Return a formula's text, written in one of the ways that mean the same; no mathematics is done."""
    text = normal_characters(formula).strip()
    for pattern, instead in REWRITTEN:
        text = pattern.sub(instead, text)
    text = re.sub(r"\s+", " ", text).strip()
    while (bare := _unwrapped(text)) != text:
        text = bare
    text = re.sub(r"(?<!\\) ?([^\w\s\\]) ?", r"\1", text)
    return text.strip()


def canonical_formula(formula: str) -> str | None:
    """Return the text that votes compare: an exact number's one text, or the tidy formula; None for an empty one."""
    text = tidy(formula)
    value = exact_number(text)
    return (number_text(value) if value is not None and _is_short(value) else text) or None


def exact_number(formula: str) -> Fraction | None:
    """Return the number that a tidy formula is, to be compared exactly; None for every other one."""
    found = _exact(formula)
    return found[0] if found is not None and found[1] <= MAX_EXACT_PLACES else None


def quickly_equal(truth: str, answer: str) -> bool | None:
    """Decide about two tidy formulas what needs no mathematics; None what does."""
    if truth == answer:
        return bool(truth)
    if max(len(truth), len(answer)) > MAX_FORMULA:
        return False
    # Before numbers are compared: equal digits in two bases are two numbers.
    if in_base(truth) or in_base(answer):
        return in_base(truth) == in_base(answer)
    if words(truth) or words(answer):
        return _as_words(truth) == _as_words(answer)
    if {_shape(truth), _shape(answer)} == {"set", "tuple"}:
        return False
    return _equal_values(_exact(truth), _exact(answer))


def quantity(formula: str, *, beside_a_unit: bool = False) -> Quantity:
    """Return a tidy formula without its unit of measure, multiplied by the word of scale that stands there.

    Args:
        formula: A tidy one.
        beside_a_unit: Whether another side states a unit: then ``7 m^2`` does too, and is no product.
    """
    letter = _LETTER_UNIT.fullmatch(formula) if beside_a_unit else None
    if letter:
        return Quantity(core=letter["core"], unit=_unit(letter["unit"], letter["power"]))
    money = _MONEY.fullmatch(formula)
    if money:
        inner = quantity(money["core"])
        return Quantity(core=inner.core, unit={r"\$": "$"}.get(money["sign"], money["sign"]))
    degrees = _DEGREES.fullmatch(formula)
    if degrees:
        return Quantity(core=degrees["core"], unit="°")
    found = _TRAILING.fullmatch(formula)
    if found is None or not found["core"]:
        return Quantity(core=formula, unit=None)
    named = found["text"] if found["text"] is not None else found["bare"]
    scale = re.match(rf"(?i:({_SCALE}))\b\.?\s*", named)
    core = found["core"].strip()
    if scale:
        value = exact_number(core)
        if value is None or not _is_short(value):
            return Quantity(core=formula, unit=None)
        core, named = number_text(value * SCALES[scale[1].casefold()]), named[scale.end() :]
    unit = _unit(named + (found["raised"] or ""), found["power"])
    return Quantity(core=core, unit=unit) if unit or scale else Quantity(core=formula, unit=None)


def words(formula: str) -> str | None:
    r"""Return the words of a tidy formula that is text, in one case: ``\text{…}``, or some of four letters."""
    wrapped = TEXT.fullmatch(formula)
    if wrapped:
        letters = re.fullmatch(r"[A-Za-z\s().,'’-]+", wrapped[1])
    else:
        letters = re.fullmatch(r"(?=.*[A-Za-z]{4})[A-Za-z\s'’-]+", formula)
    return " ".join(re.findall(r"[a-z'’]+", letters[0].casefold())) or None if letters else None


def in_base(formula: str) -> str | None:
    """Return a tidy formula that is a number in a stated base, as ``digits_base``; None for every other one."""
    found = re.fullmatch(
        r"\(?([0-9][0-9A-Fa-f]*)\)?_(?:([0-9])|\{?([0-9]{1,2})\}?|\\text\{([a-z]+)\})", formula, re.ASCII
    )
    return f"{found[1].upper()}_{found[2] or found[3] or found[4]}" if found else None


def _exact(formula: str) -> tuple[Fraction, int] | None:
    """Return a tidy formula's exact value and its most decimals; None where it has none."""
    if (
        not formula
        or "%" in formula
        or "$" in formula
        or "," in re.sub(r"[0-9]{1,3}(?:,[0-9]{3})+", "", formula)
    ):
        return None
    found = exact_value(formula)
    if found is not None:
        return found
    # Mixed numbers, 1.5e3 and the like: one number and nothing beside it.
    if not re.fullmatch(r"[-+0-9.,/eE\s{}^\\a-z×*]+", formula):
        return None
    return whole_number(re.sub(r"(?<=[0-9])\\frac", r" \\frac", formula))


def _equal_values(truth: tuple[Fraction, int] | None, answer: tuple[Fraction, int] | None) -> bool | None:
    if truth is None or answer is None:
        return None
    (one, places), (other, places_other) = truth, answer
    if one == other:
        return True
    rounded, value = (truth, other) if places > places_other else (answer, one)
    # A long decimal beside a fraction is its rounded value, if it is that to all of its places.
    if min(places, places_other) == 0 and rounded[1] > MAX_EXACT_PLACES and value.denominator > 1:
        significant = len(str(abs(rounded[0].numerator * 10 ** rounded[1] // rounded[0].denominator)))
        beyond = (abs(value) - abs(rounded[0])) * 10 ** rounded[1]
        # Rounded, or cut off.
        return significant >= MIN_ROUNDED_DIGITS and value * rounded[0] > 0 and Fraction(-1, 2) <= beyond < 1
    return False


def _shape(formula: str) -> str | None:
    """Return ``set`` or ``tuple`` for a formula that one pair of braces or of parentheses encloses, with commas."""
    for name, opening, closing in (("set", r"\{", r"\}"), ("tuple", "(", ")")):
        if not (formula.startswith(opening) and formula.endswith(closing)):
            continue
        inner, depth, commas = formula[len(opening) : -len(closing)], 0, 0
        for sign in inner:
            depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(sign, 0)
            if depth < 0:
                return None
            commas += sign == "," and not depth
        return name if commas and not re.fullmatch(r"[0-9]{1,3}(?:,[0-9]{3})+", inner) else None
    return None


def _unit(named: str, power: str | None) -> str | None:
    """Return the one name of a unit of measure, with its power; None of other words."""
    text = re.sub(r"\bper\b", "/", named.strip().strip(".").replace("\\", ""))
    found = re.match(r"(square|sq\.?|cubic|cu\.?)\s+", text)
    if found:
        power = "2" if found[1].startswith("sq") else "3"
        text = text[found.end() :]
    found = re.search(r"(?:\^\{?([123])\}?|([²³]))$", text)
    if found:
        power = found[1] or {"²": "2", "³": "3"}[found[2]]
        text = text[: found.start()]
    parts = [part.strip() for part in text.split("/")]
    names = [UNITS.get(part) or UNITS.get(part.casefold()) for part in parts]
    if None in names or len(names) > 2:
        return None
    return "/".join(filter(None, names)) + (f"^{power}" if power and power != "1" else "")


def _as_words(formula: str) -> str | None:
    r"""Return a formula's words; of shorter bare ones too, since the other side says that words are meant."""
    return words(formula) or words(rf"\text{{{formula}}}")


def _is_short(value: Fraction) -> bool:
    limit = 4 * MAX_VALUE_LETTERS  # bits, so that no long number is written to be measured
    return max(value.numerator.bit_length(), value.denominator.bit_length()) < limit and (
        len(number_text(value)) <= MAX_VALUE_LETTERS
    )


def _unwrapped(text: str) -> str:
    """Take one pair of dollars or brackets of mathematics, a box, or a full stop, away from a formula's ends."""
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**")):
        if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            return text[len(opening) : -len(closing)].strip()
    if re.match(r"\\f?box(?:ed)?(?![A-Za-z])", text):
        held = last_boxed(text)
        if held is not None and text.endswith(("}", held)):
            return held
    if re.fullmatch(r"\{[^{}]*\}", text):
        return text[1:-1].strip()
    return text[:-1].strip() if text.endswith(".") else text
