"""Fidelity cards: what a technique was written from, where it departs from that, and what holds it to it.

A technique of a paper says so in ``@technique(fidelity={...})``, in literals that are read without running the file.
``mistakes_in`` holds the card against the source that it stands in: every option and constant has the value that the
card says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from paceline.base.errors import UserError, expected_one_of
from paceline.base.techniques.declarations import Place, accepts, described, filled, missing, mistakes

TEST = re.compile(r"tests/[\w/]+\.py::\w+")
"""A file and a function in it."""
SOURCE = re.compile(r"(github\.com/[\w.-]+/[\w.-]+: \S.*|paper, \S.*)")
"""A file of a repository, or a place in the paper."""
SOURCE_RULE = "'github.com/OWNER/REPOSITORY: FILE' or 'paper, SECTION'"
TEST_RULE = "tests/FOLDER/FILE.py::FUNCTION"

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a technique was held against when its card was written."""

    read: Literal["code", "reimplementation", "paper", "catalogue"]
    """The nearest to the authors that was read for the card: their code, somebody else's, their paper (its abstract
    counts), or only the ledger's summary of it."""
    paper: str
    """Sections, equations or algorithms of the paper; "by the header" where they were not read again for the card."""
    code: str
    """Repository and files that were read, or that none was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number or a choice that decides what a technique does."""

    here: Value
    """Its default in this file."""
    authors: str
    """The authors' value, and where it stands; or that it is not public."""
    official: Value = None
    """Their value as a literal, as it was read in ``source``."""
    source: str = ""
    """Where: repository and file, or a section of the paper; empty where the two were not compared."""
    differs: str = ""
    """Why the value here is another one: a declared deviation."""

    @property
    def compared(self) -> bool:
        """Whether somebody read the official value beside this one."""
        return bool(self.source)

    @property
    def same(self) -> bool:
        """Whether the two are one number, whatever its type, or one choice."""
        flags = isinstance(self.here, bool) == isinstance(self.official, bool)
        return flags and self.here == self.official


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How near a technique is to its paper."""

    source: Source
    deviations: tuple[str, ...]
    """What differs from the paper or the authors' code, each in one sentence."""
    constants: Mapping[str, Constant]
    """Every option, and every constant of the file that is worth comparing; empty where there is none."""
    checked_by: tuple[str, ...]
    """Tests against a worked example, a closed form or an independent formula: ``FILE::FUNCTION``."""


def card_of(given: object, *, at: Place) -> Fidelity:
    """Make a checked card from what ``@technique`` was given.

    Args:
        given: The argument ``fidelity``.
        at: The place of an argument of the decorator or of a key in it.

    Raises:
        UserError: A key is missing, unknown or ill-typed, or a text is empty.
    """
    if not isinstance(given, Mapping):
        raise UserError(
            "'fidelity' of @technique is no dict", where=at("fidelity"), expected="a dict by name"
        )
    place = _below(at)
    wrong = next(
        chain(_strange_keys(given, at, place), _strange_constants(given.get("constants"), place)), None
    )
    if wrong is None:
        wrong = next(chain(_empty_texts(given, place), _undeclared(given["constants"], place)), None)
    if wrong is not None:
        raise wrong
    return Fidelity(
        source=filled(Source, given["source"]),
        deviations=tuple(given["deviations"]),
        constants={name: filled(Constant, value) for name, value in given["constants"].items()},
        checked_by=tuple(given["checked_by"]),
    )


def _strange_keys(given: Mapping[str, Any], at: Place, place: Place) -> Iterator[UserError]:
    for name in missing(given, Fidelity):
        yield UserError(f"the card lacks '{name}'", where=at("fidelity"), expected=f"a literal {name}")
    texts = {name: value for name, value in given.items() if name != "constants"}
    yield from mistakes(texts, [Fidelity], noun="key", whose="fidelity cards have", at=place)


def _strange_constants(given: object, place: Place) -> Iterator[UserError]:
    if not isinstance(given, Mapping):
        yield UserError(
            "'constants' of the card is no dict", where=place("constants"), expected="a dict by name"
        )
        return
    for name, value in given.items():
        where = place(f"constants.{name}")
        if not accepts(value, Constant):
            yield UserError(
                f"the constant '{name}' cannot be {value!r}", where=where, expected=described(Constant)
            )


def _empty_texts(given: Mapping[str, Any], place: Place) -> Iterator[UserError]:
    """Yield the places of a well-typed card that say nothing."""
    for name in ("paper", "code"):
        if not given["source"][name].strip():
            yield UserError(
                f"'{name}' of the source is empty", where=place(f"source.{name}"), expected="a text"
            )
    for name, constant in given["constants"].items():
        if not constant["authors"].strip():
            yield UserError(
                f"the constant '{name}' does not say what the authors have",
                where=place(f"constants.{name}"),
                expected="their value and where it stands, or 'not public'",
            )
    if not given["deviations"]:
        yield UserError(
            "the card names no deviation", where=place("deviations"), expected="at least 'None found: ….'"
        )
    for sentence in given["deviations"]:
        if len(sentence) < 2 or not sentence.endswith("."):
            yield UserError(
                f"'{sentence}' is no sentence",
                where=place("deviations"),
                expected="a sentence with its full stop",
            )
    if not given["checked_by"]:
        yield UserError("the card names no test", where=place("checked_by"), expected=TEST_RULE)
    for test in given["checked_by"]:
        if TEST.fullmatch(test) is None:
            yield UserError(f"'{test}' names no test", where=place("checked_by"), expected=TEST_RULE)


def _undeclared(constants: Mapping[str, Any], place: Place) -> Iterator[UserError]:
    """Yield the constants that differ from the official source and do not say why, and what only seems compared."""
    for name, given in constants.items():
        constant, where = filled(Constant, given), place(f"constants.{name}")
        if not constant.compared:
            if "official" in given or constant.differs:
                yield UserError(
                    f"the constant '{name}' does not say where its official value stands",
                    where=where,
                    expected=f"'source': {SOURCE_RULE}",
                )
        elif SOURCE.fullmatch(constant.source) is None:
            yield UserError(f"'{constant.source}' names no source", where=where, expected=SOURCE_RULE)
        elif "official" not in given:
            yield UserError(
                f"the constant '{name}' has a source and no value from it",
                where=where,
                expected="'official': …",
            )
        elif constant.same and constant.differs:
            yield UserError(
                f"the constant '{name}' is {constant.here!r} here and there, and is said to differ",
                where=where,
                expected="no 'differs'",
            )
        elif not constant.same and not constant.differs.strip():
            yield UserError(
                f"the constant '{name}' is {constant.here!r} here and {constant.official!r} in {constant.source}",
                where=where,
                expected="the official value, or a declared deviation: 'differs', why it is another",
            )


def _below(at: Place) -> Place:
    return lambda key: at(f"fidelity.{key}")


def mistakes_in(
    card: Fidelity, options: Mapping[str, Any], settings: Mapping[str, Any], *, at: Place
) -> Iterator[UserError]:
    """Yield where a card and the code that it stands above disagree.

    Args:
        card: The card.
        options: The technique's options with their defaults.
        settings: Literal constants of its file.
        at: The place of an argument of the decorator or of a key in it.
    """
    place = _below(at)
    known = {**settings, **options}
    for name, constant in card.constants.items():
        if name not in known:
            yield UserError(
                f"the card has the constant '{name}', which the file lacks",
                where=place(f"constants.{name}"),
                expected=expected_one_of(name, known),
            )
        elif not _same(constant.here, known[name]):
            yield UserError(
                f"the card says that '{name}' is {constant.here!r}, and the code {known[name]!r}",
                where=place(f"constants.{name}"),
                expected=f"'here': {known[name]!r}",
            )
    for name in options:
        if name not in card.constants:
            yield UserError(
                f"the card does not have the option '{name}'",
                where=place("constants"),
                expected=f"'{name}': {{'here': {options[name]!r}, 'authors': …}}",
            )


def _same(said: object, found: object) -> bool:
    """Compare with types: 1, 1.0 and True are three values."""
    return type(said) is type(found) and said == found
