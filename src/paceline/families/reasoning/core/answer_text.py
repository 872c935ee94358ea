r"""Reads answers out of free text by exact rules: numbers, letters of choices, and the text of formulas.

What a model states is taken from the first of these places that there is: the last closed ``\boxed{…}``, the last
``#### …``, the last sentence with "answer is" or "answer:", the end of the text. A stated place that cannot be read is
no answer; the rules do not look on for something that fits.

Numbers are exact fractions. Read are digits with commas between thousands, decimals, ``a/b`` and ``\frac{a}{b}``, mixed
numbers, ``1.5e3`` and ``1.5 \times 10^{3}``. Currency signs, per cent and degree signs and words beside a number are
units, which do not count: ``50\%`` is 50.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

Kind = Literal["number", "math", "choice"]
KINDS: tuple[Kind, ...] = ("number", "math", "choice")
CHOICES = "ABCD"
MAX_NUMBER_LETTERS = 200
"""Of one number's text: nobody answers by more digits, and whole numbers of thousands of them take long."""
MAX_EXACT_PLACES = 5
"""Of decimals that are exact in formulas; longer ones may be rounded results, which comparisons of formulas forgive."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(
    # Not inside of words, indices, exponents or commands; a minus behind a closing bracket is a subtraction.
    r"(?<![0-9A-Za-z_^.\\])"
    r"(?P<sign>(?<![)\]}%])[-+])?"
    rf"(?:(?:(?P<whole>[0-9]+) )?(?P<over>{_DIGITS}) ?/ ?(?P<under>{_DIGITS})(?![.,]?[0-9])"
    rf"|(?P<decimal>{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE](?P<exponent>[-+]?[0-9]{{1,3}})(?![0-9A-Za-z]))?"
    r"(?![0-9]|[eE][-+]?[0-9]))"
)
_UNITS = re.compile(r"(?:[A-Za-z\s.:;,°²³'’\"()]|-(?=[A-Za-z])|(?<=[A-Za-z]) ?\^?\{?[23]\}?)*")
_STATED = re.compile(r"\banswer(?:\s+is|\s*:|\s+is\s*:)(?!\s*not\b)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)")

_REWRITTEN = (
    (re.compile("\u2212"), "-"),
    # A command's backslash is none that another one stands before: two are the end of a matrix's row.
    (re.compile(r"(?<!\\)\\(?:left|right)(?![A-Za-z])"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<!\\)\\[!,;:]"), ""),
    (re.compile(r"(?<!\\)\\(?: |q?quad(?![A-Za-z]))|~|\u00a0"), " "),
    (re.compile(r"\s*\\\\(?:\[[^\[\]]*(?:pt|em|ex|mm|cm)\])?\s*"), r"\\\\"),
    (re.compile(r"(?:\\\\)?\s*(\\end\{[a-z*]*matrix\*?\})|(\\begin\{[a-z*]*matrix\*?\})\s*"), r"\1\2"),
    (
        re.compile(
            r"[(\[]\s*\\begin\{array\}\s*\{[lcr]+\}\s*(.*?)(?:\\\\)?\s*\\end\{array\}\s*[)\]]", re.DOTALL
        ),
        r"\\begin{pmatrix}\1\\end{pmatrix}",
    ),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\frac\s*([0-9])\s*([0-9])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\frac\s*([0-9])\s*\{"), r"\\frac{\1}{"),
    (re.compile(r"\\sqrt\s*([0-9A-Za-z])"), r"\\sqrt{\1}"),
    (re.compile(r"\\(?:mathrm|textbf|mathbf|textit|textrm|mbox|textnormal)\s*\{"), r"\\text{"),
)
"""Ways of writing the same, each by one of them."""

_FRACTION = re.compile(r"\\frac\s*\{\s*(-?[0-9,]+)\s*\}\s*\{\s*([0-9,]+)\s*\}")
_POWER_OF_TEN = re.compile(
    r"\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?[0-9]+)\s*\}|([-+]?[0-9]+))"
)
_SIGNS = re.compile(r"\\?\$|[€£¥]|\\?%|\*\*|\\[()\[\]]|\^\s*\{?\s*\\circ(?:\s*\})?|\\degree(?![a-z])")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


def last_boxed(text: str) -> str | None:
    r"""Return what the last closed ``\boxed{…}`` holds; None where there is none."""
    # From the end, and only what is closed: a text that was cut off inside of its box has not answered there.
    for found in reversed(list(re.finditer(r"\\f?box(?:ed)?\s*\{", text))):
        depth, place = 1, found.end()
        while place < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            # An escaped brace opens and closes nothing.
            place += 2 if text[place] == "\\" else 1
        if not depth:
            return text[found.end() : place - 1].strip()
    return None


def stated(text: str) -> str | None:
    """Return the rest of the sentence after the last "answer is" or "answer:", or the next line where it is empty."""
    found = None
    for found in _STATED.finditer(text):  # noqa: B007 - the last one is meant
        pass
    if found is None:
        return None
    rest = text[found.end() :].lstrip(" *:_\n\t")
    end = _SENTENCE_END.search(rest)
    return (rest if end is None else rest[: end.start()]).strip() or None


def number_text(value: Fraction) -> str:
    """Return a number's one text: digits, with ``/`` and a denominator where it is not whole."""
    return str(value)


def read_number(text: str) -> Fraction | None:
    """Return the number that a short text consists of, behind its last equals sign, units aside; None for others."""
    plain = re.split(r"=|≈|\\approx", _plain(text))[-1]
    found = list(_NUMBER.finditer(plain))
    # Two numbers are two answers, and a grader must not choose the better one.
    if len(found) != 1:
        return None
    (one,) = found
    beside = plain[: one.start()], plain[one.end() :]
    return _value(one) if all(_UNITS.fullmatch(part) for part in beside) else None


def exact_number(formula: str) -> Fraction | None:
    """Return the number that a tidy formula consists of, to be compared exactly; None for every other one."""
    if not re.fullmatch(r"[-+0-9.,/eE\s{}^\\a-z×*]+", formula) or "%" in formula or "$" in formula:
        return None
    plain = _plain(formula).strip()
    found = _NUMBER.fullmatch(plain)
    places = len((found["decimal"] or "").partition(".")[2]) if found else 0
    return _value(found) if found and places <= MAX_EXACT_PLACES else None


def extract_number(text: str) -> str | None:
    """Return the number that a text answers by; without a stated one the last number counts."""
    boxed = last_boxed(text)
    # Final even where it is unreadable: looking on would find some number of the working by luck.
    if boxed is not None:
        value = read_number(boxed)
        return None if value is None else number_text(value)
    marked = re.findall(r"####([^\n]*)", text)
    if marked:
        value = read_number(marked[-1])
        return None if value is None else number_text(value)
    sentence = stated(text)
    if sentence is not None:
        value = _first_number(_plain(sentence))
        if value is not None:
            return number_text(value)
    found = list(_NUMBER.finditer(_plain(text)))
    value = _value(found[-1]) if found else None
    return None if value is None else number_text(value)


def extract_choice(text: str, choices: str = CHOICES) -> str | None:
    """Return the letter that a text answers by, from a box, "answer is", or a last line of nothing else."""
    letter = rf"(?:\(([{choices}{choices.lower()}])\)|([{choices}])(?![A-Za-z0-9']))"
    boxed = last_boxed(text)
    if boxed is not None:
        return _letter(re.match(letter, _TEXT.sub(r"\1", tidy(boxed)).strip(" *"), re.ASCII), boxed, choices)
    sentence = stated(text)
    if sentence is not None:
        bare = _SIGNS.sub("", sentence)
        named = re.match(r"\s*(?:option|choice)?\s*" + letter, _TEXT.sub(r"\1", bare), re.ASCII)
        return _letter(named, bare, choices)
    lines = text.strip().splitlines()
    alone = re.fullmatch(rf"\W*{letter}\W*", lines[-1], re.ASCII) if lines else None
    return _letter(alone, lines[-1] if lines else "", choices)


def tidy(formula: str) -> str:
    """Return a formula's text, written in one of the ways that mean the same; no mathematics is done."""
    text = formula.strip()
    for pattern, instead in _REWRITTEN:
        text = pattern.sub(instead, text)
    text = re.sub(r"\s+", " ", text).strip()
    while (bare := _unwrapped(text)) != text:
        text = bare
    text = re.sub(r"(?<!\\) ?([^\w\s\\]) ?", r"\1", text)
    return text.strip()


def canonical_formula(formula: str) -> str | None:
    """Return the text that votes compare: an exact number's one text, or the tidy formula; None for an empty one."""
    text = tidy(formula)
    # A mixed number, and no product: 2\frac{1}{2} is 5/2.
    spaced = re.sub(r"(?<=[0-9])\\frac", r" \\frac", text)
    value = exact_number(spaced)
    return (number_text(value) if value is not None else text) or None


def words(formula: str) -> str | None:
    r"""Return the words of a tidy formula that is text, in one case: ``\text{…}``, or some of four letters."""
    wrapped = _TEXT.fullmatch(formula)
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


def _unwrapped(text: str) -> str:
    """Take one pair of dollars or brackets of mathematics, or a full stop, away from a formula's ends."""
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**")):
        if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            return text[len(opening) : -len(closing)].strip()
    return text[:-1].strip() if text.endswith(".") else text


def _plain(text: str) -> str:
    """Return a text with the LaTeX of numbers written as plain characters."""
    for pattern, instead in _REWRITTEN:
        text = pattern.sub(instead, text)
    text = _TEXT.sub(r" \1 ", text)
    text = _FRACTION.sub(r" \1/\2", text)
    text = _POWER_OF_TEN.sub(lambda found: f"e{found[1] or found[2]}", text)
    text = re.sub(r"-\s+(?=[0-9]+/)", "-", _SIGNS.sub("", text))
    return re.sub(r"(?<=[0-9])  +(?=[0-9])", " ", text)


def _value(found: re.Match[str]) -> Fraction | None:
    if len(found[0]) > MAX_NUMBER_LETTERS:
        return None
    if found["over"] is not None:
        under = int(found["under"].replace(",", ""))
        # Division by zero in a model's text is no answer, and no crash of the grader.
        if not under:
            return None
        value = int(found["whole"] or 0) + Fraction(int(found["over"].replace(",", "")), under)
    else:
        value = Fraction(found["decimal"].replace(",", "")) * Fraction(10) ** int(found["exponent"] or 0)
    return -value if found["sign"] == "-" else value


def _first_number(sentence: str) -> Fraction | None:
    """Return a sentence's first number; where it begins a sum, the first one behind the last equals sign."""
    found = _NUMBER.search(sentence)
    if found is None:
        return None
    # "The answer is 3 + 4 = 7": the first number is only a term.
    if re.match(r"\s*(?:[-+*/×=^]|\\times|\\cdot)", sentence[found.end() :]):
        found = _NUMBER.search(sentence.rpartition("=")[2]) if "=" in sentence else None
    return None if found is None else _value(found)


def _letter(found: re.Match[str] | None, text: str, choices: str) -> str | None:
    if found is not None:
        return (found[1] or found[2]).upper()
    bare = re.sub(r"[\W_]", "", text)
    return bare.upper() if len(bare) == 1 and bare.upper() in choices else None
