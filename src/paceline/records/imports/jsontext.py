"""JSON that keeps numbers exact and remembers on which line every item of its list of results begins.

What is not read does not matter: NaN, an infinite or an endless number, and a key that stands twice in an object are
refused where they are read, not where they stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from paceline.base.errors import UserError

_SPACE = " \t\r\n"
MOST_DIGITS = 400


class JsonText:
    """One JSON object, read part by part.

    Args:
        text: The file's content.
        name: The file's name, for messages.

    Raises:
        UserError: Not one JSON object, with the line.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.decoder = json.JSONDecoder(
            parse_float=Decimal, parse_int=_whole, parse_constant=NoNumber, object_pairs_hook=_object
        )
        self.at = 0

    def read(self, listed: str) -> tuple[dict[str, Any], list[Item]]:
        """Return the object's keys but one, and the items of that one with their places.

        Args:
            listed: The key that holds the list of results.
        """
        self._expect("{")
        rest: dict[str, Any] = {}
        items: list[Item] | None = None
        while not self._take("}"):
            if rest or items is not None:
                self._expect(",")
            key = self._value()
            if not isinstance(key, str) or key in rest:
                raise self.error(f"the key '{key}' stands here a second time or is not text")
            self._expect(":")
            if key == listed:
                items = self._items(listed)
            else:
                rest[key] = self._value()
        self._skip()
        if self.at < len(self.text):
            raise self.error("text after the end of the object")
        if items is None:
            raise UserError(f"the file has no '{listed}'", where=self.name)
        return rest, items

    def _items(self, listed: str) -> list[Item]:
        self._expect("[")
        items: list[Item] = []
        while not self._take("]"):
            if items:
                self._expect(",")
            self._skip()
            where = f"{self.name}:{self._line()}:{listed}[{len(items)}]"
            value = self._value()
            if not isinstance(value, dict):
                raise UserError("not an object", where=where)
            refuse_repeated(value, where)
            items.append(Item(data=value, where=where))
        return items

    def _value(self) -> Any:
        self._skip()
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            raise UserError(f"not JSON: {error.msg}", where=f"{self.name}:{error.lineno}") from error
        except (ValueError, RecursionError) as error:
            raise self.error(f"not acceptable JSON: {str(error)[:120]}") from error
        return value

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def _take(self, mark: str) -> bool:
        self._skip()
        if self.text.startswith(mark, self.at):
            self.at += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            found = self.text[self.at : self.at + 12] or "the end of the file"
            raise self.error(f"not JSON: '{mark}' is missing before '{found}'")

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def error(self, what: str) -> UserError:
        """Make an error that points at the current line."""
        return UserError(what, where=f"{self.name}:{self._line()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One object of the file and its place; the getters name the key that is missing or of the wrong kind."""

    data: Mapping[str, Any]
    where: str

    def text(self, key: str) -> str:
        """Return a string."""
        value = self.data.get(key)
        if not isinstance(value, str):
            raise UserError("missing, or not text", where=f"{self.where}.{key}")
        return value

    def count(self, key: str) -> int:
        """Return a whole number from 0."""
        value = self.data.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise UserError("missing, or not a whole number from 0", where=f"{self.where}.{key}")
        return value

    def decimal(self, key: str) -> str:
        """Return the text of a number (or of ``"nan"``, which some tools write as text)."""
        return self.number_text(self.data.get(key), key)

    def number_text(self, value: Any, key: str) -> str:
        """Return the text of a value that has to be a number."""
        if isinstance(value, str) and value in ("nan", "-nan"):
            return value
        if isinstance(value, NoNumber):
            if value.text == "NaN":
                return "nan"
            raise UserError(f"{value.text} is not a finite number", where=f"{self.where}.{key}")
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise UserError("missing, or not a number", where=f"{self.where}.{key}")
        return str(value)

    def below(self, key: str) -> Item:
        """Return a nested object."""
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise UserError("missing, or not an object", where=f"{self.where}.{key}")
        refuse_repeated(value, f"{self.where}.{key}")
        return Item(data=value, where=f"{self.where}.{key}")


@dataclass(frozen=True, slots=True)
class NoNumber:
    """``NaN``, ``Infinity`` or digits without end, where JSON has a number."""

    text: str

    def __str__(self) -> str:
        return self.text


class _Repeated(dict[str, Any]):
    """An object in which a key stands twice."""


def refuse_repeated(value: Mapping[str, Any], where: str) -> None:
    """Refuse an object in which a key stands twice.

    Raises:
        UserError: It is one.
    """
    if isinstance(value, _Repeated):
        raise UserError("a key stands twice in one object", where=where)


def _whole(text: str) -> int | NoNumber:
    return int(text) if len(text) <= MOST_DIGITS else NoNumber(f"{text[:20]}…")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(found)
