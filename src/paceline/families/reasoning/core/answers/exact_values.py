r"""Exact values of formulas that are arithmetic: ``2^{10}``, ``6!``, ``\frac{1}{2^{99}}``, ``1-\frac{1}{3^{40}}``.

A formula has a value here only if it is a sum of products of powers of numbers, fractions, factorials and binomials.
Variables, roots and functions have none; neither have numbers that would be longer than ``MAX_BITS``.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

MAX_BITS = 60_000
"""Of a value's numerator or denominator: 2006! has 19 000."""
MAX_FACTORIAL = 3000
MAX_DEPTH = 40

DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>{DIGITS}(?:\.[0-9]+)?|\.[0-9]+)|(?P<command>\\(?:frac|binom|cdot|times|div))(?![A-Za-z])"
    r"|(?P<sign>[-+*/^!(){}×÷·]))"
)


class _NoValueError(Exception):
    """A formula has no exact value here."""


def exact_value(formula: str) -> tuple[Fraction, int] | None:
    """Return the value of a tidy formula and the most decimals that a number of it has; None where it has no value."""
    tokens = []
    place = 0
    text = formula.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            return None
        tokens.append(found["number"] or found["command"] or found["sign"])
        place = found.end()
    reader = _Reader(tokens)
    try:
        value = reader.sum(0)
        reader.end()
    except (_NoValueError, ZeroDivisionError):
        return None
    return value, max((len(t.partition(".")[2]) for t in tokens if t[0].isdigit() or t[0] == "."), default=0)


class _Reader:
    """Reads tokens by recursive descent."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at = tokens, 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise _NoValueError

    def sum(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise _NoValueError
        negative = self._taken("-", "+") == "-"
        value = self._product(depth)
        value = -value if negative else value
        while sign := self._taken("+", "-"):
            part = self._product(depth)
            value = _bounded(value + part if sign == "+" else value - part)
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._power(depth)
        while True:
            if self._taken("*", "×", "·", r"\cdot", r"\times"):
                value = _bounded(value * self._signed(depth))
            elif self._taken("/", "÷", r"\div"):
                value = _bounded(value / self._signed(depth))
            # "2(3)" is a product; a number beside a number is none.
            elif self._next() == "(":
                value = _bounded(value * self._power(depth))
            else:
                return value

    def _signed(self, depth: int) -> Fraction:
        return -self._power(depth) if self._taken("-") else self._power(depth)

    def _power(self, depth: int) -> Fraction:
        base = self._atom(depth)
        while self._taken("!"):
            if base.denominator != 1 or not 0 <= base <= MAX_FACTORIAL:
                raise _NoValueError
            base = Fraction(math.factorial(int(base)))
        if not self._taken("^"):
            return base
        if self._taken("{"):
            exponent = self.sum(depth + 1)
            self._expect("}")
        else:
            token = self._next()
            if token is None or not re.fullmatch("[0-9]", token):  # TeX raises one sign
                raise _NoValueError
            self._at += 1
            exponent = Fraction(token)
        if self._next() == "!":
            raise _NoValueError
        return _raised(base, exponent)

    def _atom(self, depth: int) -> Fraction:
        token = self._next()
        if token is None:
            raise _NoValueError
        self._at += 1
        if token[0].isdigit() or token[0] == ".":
            value = Fraction(token.replace(",", ""))
            # 2\frac{1}{2} is a mixed number, and no product.
            return value + self._atom(depth) if self._next() == r"\frac" and value.denominator == 1 else value
        if token in ("(", "{"):
            value = self.sum(depth + 1)
            self._expect(")" if token == "(" else "}")
            return value
        if token in (r"\frac", r"\binom"):
            over, under = self._group(depth), self._group(depth)
            if token == r"\frac":
                return _bounded(over / under)
            if over.denominator != 1 or under.denominator != 1 or not 0 <= under <= over <= MAX_FACTORIAL:
                raise _NoValueError
            return Fraction(math.comb(int(over), int(under)))
        raise _NoValueError

    def _group(self, depth: int) -> Fraction:
        self._expect("{")
        value = self.sum(depth + 1)
        self._expect("}")
        return value

    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _taken(self, *signs: str) -> str | None:
        token = self._next()
        if token not in signs:
            return None
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._taken(sign) is None:
            raise _NoValueError


def _raised(base: Fraction, exponent: Fraction) -> Fraction:
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * bits > MAX_BITS or (not base and exponent <= 0):
        raise _NoValueError
    return Fraction(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _NoValueError
    return value
