r"""Ways of writing the same characters, each by one of them: digits of all scripts, signs, and the LaTeX of numbers."""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_FRACTIONS = {
    sign: unicodedata.normalize("NFKC", sign).replace("\u2044", "/") for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒"
}
_MINUS = re.compile(r"[\u2212\ufe63]|[\u2010-\u2014](?=[0-9.$\\€£¥₹])")
_WRAPPERS = (
    "mathrm|textbf|mathbf|textit|textrm|textsf|texttt|mathsf|mathtt|mathit|mathbb|mbox|hbox|textnormal|boldsymbol|bm|emph"
    "|underline|operatorname"
)

REWRITTEN = (
    # A command's backslash is none that another one stands before: two are the end of a matrix's row.
    (re.compile(r"(?<!\\)\\(?:left|right|displaystyle|textstyle|bf|rm|it)(?![A-Za-z])"), ""),
    (re.compile(r"\\varnothing(?![A-Za-z])|∅"), r"\\emptyset"),
    (re.compile(r"\\(?:text)?color\s*\{[^{}]*\}"), ""),
    (re.compile(r"(?:\\text)?\{,\}"), ","),
    (re.compile(r"(?<!\\)\\[!,;:]"), ""),
    (re.compile(r"(?<!\\)\\(?: |q?quad(?![A-Za-z]))|~|[\u00a0\u2009\u202f]"), " "),
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
    (re.compile(rf"\\(?:{_WRAPPERS})\s*\{{"), r"\\text{"),
    (
        re.compile(r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}"),
        r"\\text{\1/\2}",
    ),
)
"""Ways of writing the same in LaTeX, each by one of them."""


def normal_characters(text: str) -> str:
    """Return a text with Latin digits, plain minus signs, and powers and fractions of several characters."""
    if text.isascii():
        return text
    text = "".join(map(_character, text))
    text = re.sub(
        r"(?<=[0-9)\]])([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda m: f"^{{{m[1].translate(_SUPERSCRIPTS)}}}", text
    )
    for sign, parts in _FRACTIONS.items():
        text = re.sub(rf"(?<=[0-9]) ?{sign}", f" {parts}", text).replace(sign, parts)
    return _MINUS.sub("-", text)


def _character(sign: str) -> str:
    if sign.isascii():
        return sign
    if unicodedata.category(sign) == "Cf":  # marks of direction and joiners, which nobody sees
        return ""
    if (digit := unicodedata.decimal(sign, None)) is not None:
        return str(digit)
    # Full-width letters and signs; ideographic space. Not the comma of lists, which separates no thousands.
    if "\uff01" <= sign <= "\uff5e" and sign != "\uff0c":
        return chr(ord(sign) - 0xFEE0)
    return {"\u3000": " ", "\u066b": ".", "\u066c": ",", "\u2044": "/", "\u2215": "/"}.get(sign, sign)
