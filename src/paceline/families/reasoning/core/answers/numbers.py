r"""Numbers of a text as exact fractions: the grammar of numbers, their units and scales, and what is two numbers.

``docs/answers.md`` writes the grammar down. A number has digits of any script, with commas, spaces or apostrophes
between thousands, decimals, ``a/b`` and ``\frac{a}{b}``, mixed numbers, ``1.5e3``, ``1.5 \times 10^{3}``, ``2^{10}``
and ``6!``. A word of scale behind it multiplies it. Currency signs, per cent and degree signs and words beside it are
units, which do not count: ``50\%`` is 50.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from paceline.families.reasoning.core.answers.characters import REWRITTEN, normal_characters
from paceline.families.reasoning.core.answers.exact_values import exact_value
from paceline.families.reasoning.core.answers.words import ATTACHED, DENIED, SCALES, UNDECIDED, UNITS

MAX_NUMBER_LETTERS = 200
"""Of one number's text: nobody answers by more digits, and whole numbers of thousands of them take long."""
MAX_POWER_BITS = 10_000
"""Of a power's value: Python writes no number of more than 4300 digits."""
MAX_FACTORIAL = 1000

_DIGITS = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?: [0-9]{3})+(?![0-9/]| ?/)|[0-9]{1,3}(?:['’][0-9]{3})+(?![0-9])"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])|[0-9]{1,3}(?:\.[0-9]{3}){2,}(?![0-9])|[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]{1,2}(?![0-9])|[0-9]+)"
)
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_SCALE = "|".join(sorted(map(re.escape, SCALES), key=len, reverse=True))
_CHINESE = re.compile("[零〇一二三四五六七八九十百千万亿两]+")
_NUMBER = re.compile(
    # Not inside of words, indices, exponents or commands; a minus behind a closing bracket is a subtraction.
    r"(?<![0-9A-Za-z_^.\\])"
    r"(?P<sign>(?<![)\]}%])[-+])?"
    rf"(?:(?:(?P<whole>[0-9]+) )?(?P<over>{_WHOLE}) ?/ ?(?P<under>{_WHOLE})(?![.,]?[0-9])"
    r"|(?P<base>[0-9]+) ?(?:\^|\*\*) ?(?:\{ ?(?P<braced>[-+]?[0-9]{1,4}) ?\}|(?P<power>[-+]?[0-9]{1,4}))(?![0-9.^!])"
    r"|(?P<factorial>[0-9]{1,4})!(?![!=])"
    rf"|(?P<decimal>{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE](?P<exponent>[-+]?[0-9]{{1,3}})(?![0-9A-Za-z]))?"
    r"(?![0-9]|[eE][-+]?[0-9]))"
    rf"(?:\s*-?\s*(?P<scale>(?i:{_SCALE}))(?:\.(?=\s*[^\W\d_])|(?![^\W\d_])|(?<=[百千万亿萬億만억])(?![克米瓦卡]))|(?P<attached>[kKMBmb])(?![^\W_]))?"
)
_NEGATIVE = re.compile(
    r"(?:\b(?:minus|negative|moins|menos|meno|минус)\s+|[负負]|マイナス|ऋण\s*|سالب\s*)(?=[0-9])",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:not|never|no|isn't|neither|nor)\b", re.IGNORECASE)
_OR_MORE = re.compile(
    r"[^.\n0-9]{0,30}\bor\s+(?:more|less|fewer|greater|above|below|higher|lower)\b|\s*\+(?!\s*[0-9])", re.I
)
_AT_MOST = re.compile(r"\b(?:at\s+most|no\s+more\s+than|less\s+than|up\s+to|below)\s", re.IGNORECASE)
_AT_LEAST = re.compile(r"\b(?:at\s+least|no\s+less\s+than|more\s+than|above)\s", re.IGNORECASE)
_NOT_BEFORE = re.compile(r"\b(?:not|isn't|never)\s+(?:\w+\s+)?$", re.IGNORECASE)
_LETTER = r"[^\W\d_π∞∅]"
_UNITS = re.compile(
    rf"(?:{_LETTER}|[\s.:;,°²³'’\"()·‰*_]|-(?={_LETTER})|/(?=\s*{_LETTER})|(?<={_LETTER}) ?\^?\{{?-?[123]\}}?)*"
)
_VARIABLE = re.compile(r"[xyznepqruvwij](?![^\W_])")
"""Beside a number it is a factor and no unit."""
_LISTED = re.compile(r"[0-9][^0-9]*(?:,|;|\b(?:and|or)\b)\s*[^\W\d_]", re.IGNORECASE)
_IRRATIONAL = re.compile(r"\s*(?:\\(?:sqrt|pi|ln|log|sin|cos|tan)(?![A-Za-z])|π|√)")
_CLAUSE = re.compile(r"\b(?:because|since|as|which|where|so)\b|[,;](?![0-9])| \(", re.IGNORECASE)
_OR = r"(?:or|oder|ou|o|или|hoặc|atau|veya|أو|या|either)"
_OR_NUMBER = re.compile(
    rf"(?P<between>[^\d\n=;]{{0,40}}?)(?:\b{_OR}\b|或者?|または)\s*(?:[^\W\d]+\s+){{0,3}}?[(~]?\s*(?=[-+.]?[0-9])",
    re.IGNORECASE,
)
_TO_NUMBER = re.compile(
    r"\s*(?:-|–|—|\.{2,3}|…|[至到]|(?:to|through|bis)\s)\s*(?=[-+.]?[0-9])", re.IGNORECASE
)
_AND_NUMBER = re.compile(
    r"\s*(?:,?\s*(?:and|und|et|y|e|и|&)\s|,\s|[和与、])\s*(?=[-+.]?[0-9])", re.IGNORECASE
)
_BEFORE_LAST = re.compile(rf"[^.\d\n=;]{{0,25}}\b{_OR}\b[^.\d\n=;]{{0,14}}", re.IGNORECASE)
_RESULT = re.compile(
    r"\b(?:which|that)\s+(?:is|equals|makes|gives)\s+|\b(?:comes|amounts|adds\s+up)\s+to\s+", re.I
)
_COMPUTED = re.compile(
    r"\b(?:of|times|plus|minus|divided\s+by|more\s+than|less\s+than)\s+[0-9]|[0-9]\s*[-+*/×]\s*[0-9]"
)
_UNSOLVED = re.compile(r"[0-9]\s*[a-z](?:\s*[-+]\s*[0-9]+)?\s*=\s*$")
_TITLE = re.compile(r"\s*(?:step|part|case|note|question|problem|chapter|section|example)\b", re.IGNORECASE)
_TERM = re.compile(r"\s*(?:[-+*/×=^]|\\times|\\cdot)")

_FRACTION = re.compile(r"\\frac\s*\{\s*(-?[0-9,]+)\s*\}\s*\{\s*([0-9,]+)\s*\}")
_POWER_OF_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|×|·|\*|(?<=[0-9])\s*x(?= ?10\^))\s*10\s*\^\s*(?:\{\s*([-+]?[0-9]+)\s*\}|([-+]?[0-9]+))"
)
SIGNS = re.compile(
    r"\\?\$|\b(?:US|AU|CA|HK|A|C)(?=\$\s?[0-9])|\bRs\.?(?=\s*[0-9])|\\?%|\*\*|`|\\[()\[\]]|\^\s*\{?\s*\\circ(?:\s*\})?"
    r"|\\degree(?![a-z])|\\(?:pounds|euro|yen|texteuro|textdollar|textdegree)(?![a-z])"
)
TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


def number_text(value: Fraction) -> str:
    """Return a number's one text: digits, with ``/`` and a denominator where it is not whole."""
    return str(value)


def read_number(text: str) -> Fraction | None:
    """Return the number that a short text consists of, behind its last equals sign, units aside; None for others."""
    parts = re.split(r"=|≈|\\approx(?![A-Za-z])", text)
    # "x = 5 and y = 6" are two answers, "x + y = 5 + 6 = 11" is one.
    if any(_LISTED.search(plain_text(part)) for part in parts[1:-1]):
        return None
    last = parts[-1]
    plain = plain_text(last)
    found = list(_NUMBER.finditer(plain))
    if not found:
        return _chinese(plain.strip(" ."))
    # Two numbers are two answers, and a grader must not choose the better one.
    if len(found) == 1:
        (one,) = found
        before, behind = plain[: one.start()], plain[one.end() :]
        beside = all(_UNITS.fullmatch(part) for part in (before, behind))
        if beside and not _NOT.search(before) and not _OR_MORE.match(behind) and not _VARIABLE.match(behind):
            return value_of(one, money="$" in last)
    return _of_product(last)


def whole_number(text: str) -> tuple[Fraction, int] | None:
    """Return the number that a text is, with nothing beside it, and its decimals; None for others."""
    plain = plain_text(text).strip()
    found = _NUMBER.fullmatch(plain)
    # "3k" is a product in a formula.
    value = None if found is None or found["attached"] else value_of(found)
    if found is None or value is None:
        return None
    return value, len((found["decimal"] or "").partition(".")[2])


def stated_number(sentence: str) -> tuple[bool, Fraction | None]:
    """Return whether a sentence has a number, and the one that it states; None where it states two or none alone."""
    plain = plain_text(sentence)
    found = _NUMBER.search(plain)
    if found is None:
        value = _chinese(plain)
        return value is not None, value
    # "20 % of 50, which is 10": the first number is only what it is computed from.
    result = _RESULT.search(plain, found.end())
    if (
        result
        and _COMPUTED.search(plain[found.end() : result.start()])
        and _NUMBER.match(plain, result.end())
    ):
        found = _NUMBER.match(plain, result.end())
        assert found is not None
    # "The answer is 3 + 4 = 7", "(3)(4) = 12": the first number is only a term of what stands behind the equals sign.
    clause = _CLAUSE.split(plain[found.start() :], maxsplit=1)[0]
    is_term = _TERM.match(plain[found.end() :]) and not re.match(r" - [^\d]", plain[found.end() :])
    if is_term or "=" in clause:
        behind = (clause if "=" in clause else plain).rpartition("=")
        found = _NUMBER.search(behind[2]) if behind[1] else None
        if found is None:
            return True, _of_product(sentence.strip("*. "))
        plain = behind[2]
    before, behind = plain[: found.start()], plain[found.end() :]
    # "At most 14, at least 10" is a range.
    if _AT_MOST.search(plain) and _AT_LEAST.search(plain):
        return True, None
    if (
        _VARIABLE.match(behind)
        or _IRRATIONAL.match(behind)
        or _OR_MORE.match(behind)
        or _NOT_BEFORE.search(before)
    ):
        return True, None
    if _is_two(plain, found, percent=re.search("%|per ?cent", sentence) is not None):
        return True, None
    value = value_of(found, money="$" in sentence)
    decimals = re.match(r",([0-9]{1,2})(?![0-9,])", behind)
    # "12,5" in a sentence has a comma for its decimals; in a box it may be a list.
    if decimals and value is not None and value.denominator == 1 and not found["scale"]:
        value += Fraction(int(decimals[1]), 10 ** len(decimals[1])) * (-1 if found["sign"] == "-" else 1)
    return True, value


def last_number(text: str) -> Fraction | None:
    """Return the last number of a text; None where it is one of two that "or" joins.

    A number in bold counts before others of its paragraph.
    """
    plain = plain_text(text)
    found = list(_NUMBER.finditer(plain))
    if not found:
        return None
    # "96 in all (48 + 48)": working in brackets is no result.
    outside = [one for one in found if not _is_working(plain, one)]
    found = outside or found
    last = found[-1]
    if UNDECIDED.search(text.strip().rpartition("\n\n")[2]):
        return None
    # "2x = 80" is still to be solved.
    if _UNSOLVED.search(plain[: last.start()]):
        return None
    if _NOT_BEFORE.search(plain[: last.start()]) or DENIED.search(plain[: last.start()]):
        return None
    if len(found) > 1 and _BEFORE_LAST.fullmatch(plain[found[-2].end() : last.start()]):
        beside = plain[found[-2].end() : last.start()], plain[last.end() :]
        if not _are_alike(value_of(found[-2]), value_of(last), *beside, percent="%" in text):
            return None
    paragraph = text.strip().rpartition("\n\n")[2]
    for bold in reversed(re.findall(r"\*\*([^*\n]+)\*\*", paragraph)):
        value = None if _TITLE.match(bold) or bold.endswith(":") else read_number(bold)
        if value is not None:
            return value
    return value_of(last, money="$" in text)


def _is_working(plain: str, one: re.Match[str]) -> bool:
    """Tell whether a number stands in brackets with others and a sign between them."""
    opening = plain.rfind("(", 0, one.start())
    if opening < 0 or ")" in plain[opening : one.start()] or not plain[:opening].strip():
        return False
    closing = plain.find(")", one.end())
    inside = plain[opening + 1 : closing] if closing > 0 else ""
    return "\n" not in inside and bool(re.search(r"[0-9]\s*[-+*/×÷=]\s*[-(]?[0-9]", inside))


def is_joined_by_or(text: str, value: Fraction) -> bool:
    """Tell whether the text behind a number goes on with "or" and another one."""
    plain = plain_text(text)
    other = re.match(rf"\W{{0,4}}{_OR}\b\s*(?:[^\W\d]+\s+){{0,2}}\W{{0,3}}(?=[0-9])", plain, re.IGNORECASE)
    found = _NUMBER.search(plain, other.end()) if other else None
    return found is not None and not _are_alike(
        value, value_of(found), "", plain[found.end() :], percent="%" in text
    )


def plain_text(text: str) -> str:
    """Return a text with the LaTeX of numbers written as plain characters."""
    text = normal_characters(text)
    for pattern, instead in REWRITTEN:
        text = pattern.sub(instead, text)
    while (bare := TEXT.sub(r" \1 ", text)) != text:
        text = bare
    text = re.sub(r"(?<=[0-9])\s*\^\s*\{?\s*(?:th|st|nd|rd)\s*\}?|\\(?:sim|approx)(?![A-Za-z])", " ", text)
    text = re.sub(r"(?<=[^\W\d_])\s*\\cdot\s*(?=[^\W\d_])", "·", text)
    # An exponent of a unit is no number of its own; that of a number is.
    text = re.sub(r"(?<=[^\W\d_])\s*\^\s*(?:\{\s*-?[123]\s*\}|-?[123](?![0-9]))", "", text)
    text = re.sub(r"(?<![\^_}\]A-Za-z])\{\s*([-+]?[0-9][0-9.,]*)\s*\}", r"\1", text)
    while (bare := re.sub(r"^\s*\{(.*)\}\s*$", r"\1", text, flags=re.DOTALL)) != text:
        text = bare
    text = _FRACTION.sub(r" \1/\2", text)
    text = _POWER_OF_TEN.sub(lambda found: f"e{found[1] or found[2]}", text)
    text = re.sub(r"(?<=[0-9])\*\*(?=[0-9])", "^", text)
    text = SIGNS.sub("", text)
    text = "".join(" " if unicodedata.category(sign) == "Sc" else sign for sign in text)
    text = _NEGATIVE.sub("-", text)
    text = re.sub(r"-\s+(?=[0-9]+/)|(?:^|(?<=[=:(]))\s*[-\u2013\u2014]\s+(?=[0-9])", "-", text)
    return re.sub(r"(?<=[0-9])  +(?=[0-9])", " ", text)


def value_of(found: re.Match[str], *, money: bool = False) -> Fraction | None:
    """Return a number's value; None where it has too many digits or divides by zero."""
    value = _unscaled(found)
    if value is None:
        return None
    factor = 1
    if found["scale"]:
        factor = SCALES[found["scale"].casefold()]
    elif found["attached"]:
        # "5m" is a length and "5B" may be anything: only of money they are surely scales.
        factor = ATTACHED[found["attached"].upper()] if money or found["attached"] in "kKM" else 1
    return (-value if found["sign"] == "-" else value) * factor


def _unscaled(found: re.Match[str]) -> Fraction | None:
    if len(found[0]) > MAX_NUMBER_LETTERS:
        return None
    if found["over"] is not None:
        under = int(found["under"].replace(",", ""))
        # Division by zero in a model's text is no answer, and no crash of the grader.
        if not under:
            return None
        return int(found["whole"] or 0) + Fraction(int(found["over"].replace(",", "")), under)
    if found["base"] is not None:
        value = exact_value(f"{found['base']}^{{{found['braced'] or found['power']}}}")
        return value[0] if value is not None and _is_writable(value[0]) else None
    if found["factorial"] is not None:
        value = exact_value(f"{found['factorial']}!")
        return None if value is None or int(found["factorial"]) > MAX_FACTORIAL else value[0]
    digits = re.sub("[ '’]", "", found["decimal"])
    # 1.234,50 has a comma for its decimals.
    if "." in digits and digits.rfind(",") > digits.find("."):
        digits = digits.replace(".", "").replace(",", ".")
    digits = digits.replace(",", "")
    if digits.count(".") > 1:
        digits = digits.replace(".", "")
    return Fraction(digits) * Fraction(10) ** int(found["exponent"] or 0)


def _is_writable(value: Fraction) -> bool:
    return max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_POWER_BITS


def _of_product(text: str) -> Fraction | None:
    r"""Return the value of products, quotients and powers: ``2^3 \cdot 5``; None of sums, which may be ranges."""
    bare = text.strip().strip("$").strip()
    for pattern, instead in REWRITTEN:
        bare = pattern.sub(instead, bare)
    if not re.search(r"[\^!]|\\(?:cdot|times|binom|frac)", bare) or re.search(
        r"(?<![({^])[-+]", bare.lstrip("-+ ")
    ):
        return None
    found = exact_value(bare)
    return found[0] if found is not None and _is_writable(found[0]) else None


def _is_two(plain: str, found: re.Match[str], *, percent: bool) -> bool:
    """Tell whether a sentence's first number goes on with another answer: "15 or 16", "20 to 25", "3 and 5"."""
    behind = plain[found.end() :]
    joined = _OR_NUMBER.match(behind)
    if joined:
        other = _NUMBER.search(behind, joined.end())
        if other is not None:
            beside = joined["between"], behind[other.end() :]
            return not _are_alike(value_of(found), value_of(other), *beside, percent=percent)
    unit = re.match(r"\s*[^\W\d_]*%?", behind)
    places = (0, unit.end() if unit else 0)
    joined = next((m for place in places if (m := _TO_NUMBER.match(behind, place))), None)
    listed = next((m for place in places if (m := _AND_NUMBER.match(behind, place))), None)
    one = joined or listed
    other = _NUMBER.search(behind, one.end()) if one and "=" not in behind else None
    if one is None or other is None or value_of(found) == value_of(other):
        return False
    # "18, 2 less than 20" goes on; "15, 16" and "between 15 and 16" do not.
    rest = re.sub(r"(?:,|\band\b|\bor\b|[\s-]|[0-9.])+", "", behind[other.end() :])
    is_whole = not re.search(r"[^\W\d_]", rest)
    return (
        bool(joined)
        or is_whole
        or bool(re.search(r"\bbetween\b|\bzwischen\b|\bentre\b", plain, re.IGNORECASE))
    )


def _are_alike(
    one: Fraction | None, other: Fraction | None, beside: str, beside_other: str, *, percent: bool = True
) -> bool:
    """Tell whether two numbers say the same: equal ones, per cent, or one quantity in two units of measure."""
    if one is None or other is None:
        return False
    if one == other or (percent and (one == 100 * other or other == 100 * one)):
        return True
    units = [
        next((UNITS[w] for w in re.findall(r"[^\W\d_]+", text)[:2] if w in UNITS), None)
        for text in (beside, beside_other)
    ]
    return None not in units and units[0] != units[1]


_NUMERALS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}


def _chinese(text: str) -> Fraction | None:
    """Return the number that a text without digits begins with as Chinese numerals; None of others."""
    found = _CHINESE.match(text.strip().removeprefix("约").removeprefix("是"))
    if found is None or re.search("[0-9]", text):
        return None
    total = section = digit = 0
    for sign in found[0]:
        if sign in _NUMERALS:
            digit = 10 * digit + _NUMERALS[sign] if digit else _NUMERALS[sign]
        elif sign in "十百千":
            section += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[sign]
            digit = 0
        else:
            total = (total + section + digit) * {"万": 10**4, "亿": 10**8}[sign]
            section = digit = 0
    return Fraction(total + section + digit)
