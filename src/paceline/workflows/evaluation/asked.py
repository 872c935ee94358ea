"""What a person asks for in words, read and checked: the model, the problems, prices, limits and budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError, expected_one_of
from paceline.base.units import parse_duration
from paceline.families.reasoning.core.answers.text import KINDS as ANSWER_KINDS
from paceline.families.reasoning.core.planning.naming import PARTIAL, wrong_model
from paceline.families.reasoning.core.problems.files import FORMATS, Problems, read_all
from paceline.families.reasoning.core.problems.files import draw as draw_problems
from paceline.families.reasoning.core.problems.tables import Columns, of_kind
from paceline.workflows.evaluation.pace import Budget, Prices

MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
ENDPOINT, LOCAL, KNOWN = "openai", "transformers", "mock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which model."""

    kind: str
    """``openai``, ``transformers`` or ``mock``."""
    place: str
    """Address, folder or revision, or what the mock does."""
    name: str = ""
    """The model's at its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which problems, from which table."""

    source: str
    columns: Columns | None = None
    """None where the format says it."""
    kind: str | None = None
    configuration: str | None = None
    split: str | None = None
    partial: bool = False
    count: int | None = None
    seed: int = 0


def model_of(text: str) -> Where:
    """Return which model a text names.

    Raises:
        UserError: It names none.
    """
    kind, colon, place = text.partition(":")
    if kind == KNOWN:
        return Where(kind=kind, place=place, name=f"mock:{place}" if place else "mock")
    if kind == LOCAL and place and "@" not in place:
        # No job runs in another folder here, so a path may begin here.
        text = f"{LOCAL}:{Path(place).absolute()}"
    wrong = None if colon and kind in (ENDPOINT, LOCAL) else f"model '{text}' is none that is evaluated here"
    wrong = wrong or wrong_model(text)
    if wrong is not None:
        raise UserError(
            wrong,
            where="--model",
            expected="openai:URL#NAME, transformers:FOLDER, transformers:NAME@REVISION, or mock:right=0.7",
            fix="--model=openai:http://127.0.0.1:8000/v1#NAME",
        )
    _, _, place = text.partition(":")
    if kind == ENDPOINT:
        url, _, name = place.rpartition("#")
        return Where(kind=kind, place=url, name=name)
    return Where(kind=kind, place=place, name=place)


def problems_of(asked: Asked) -> Problems:
    """Return the problems that are asked for, all of one kind of answers.

    Raises:
        UserError: The source cannot be read, has too few, or has a row that cannot be read and may not be left out.
    """
    partial = asked.partial or asked.source.endswith(PARTIAL)
    form, _, source = asked.source.removesuffix(PARTIAL).partition(":")
    if form not in FORMATS or Path(asked.source).exists():
        form, source = "", asked.source.removesuffix(PARTIAL)
    if form and (asked.columns is not None or asked.kind is not None):
        raise UserError(
            f"the format {form} says its columns and answers itself",
            where=f"--problems={asked.source}",
            expected="FORMAT:FILE, or FILE with --question, --answer and --answers",
            fix=f"--problems={source}",
        )
    if not form and ":" in source and not Path(source).exists() and "/" not in source.partition(":")[0]:
        name = source.partition(":")[0]
        raise UserError(
            f"no format '{name}' of problems", where="--problems", expected=expected_one_of(name, FORMATS)
        )
    try:
        found = _read(form, source, asked, partial)
    except UserError as error:
        if not partial:
            error.reword(
                lambda text: text.replace(
                    f"end the problems' name in '{PARTIAL.strip()}'", "give --allow-partial"
                )
            )
        raise
    if asked.count is None:
        return found
    drawn = draw_problems(found.problems, asked.seed, asked.count)
    return Problems(problems=tuple(drawn), left_out=found.left_out)


def _read(form: str, source: str, asked: Asked, partial: bool) -> Problems:
    columns = asked.columns or Columns()
    if asked.kind is not None:
        columns = Columns(
            questions=columns.questions,
            answers=columns.answers,
            choices=columns.choices,
            kind=_kind(asked.kind),
        )

    def read(columns: Columns) -> Problems:
        return read_all(
            form or columns.format(),
            source,
            config=asked.configuration,
            split=asked.split,
            seed=asked.seed,
            allow_partial=partial,
        )

    found = read(columns)
    if form or asked.kind is not None:
        return found
    better = of_kind(columns, found.problems)
    return found if better == columns else read(better)


def _kind(text: str) -> Any:
    if text not in ANSWER_KINDS:
        raise UserError(
            f"no kind '{text}' of answers", where="--answers", expected=expected_one_of(text, ANSWER_KINDS)
        )
    return text


def amounts(text: str, option: str, names: Sequence[str]) -> dict[str, str]:
    """Return what ``NAME=VALUE,NAME=VALUE`` sets.

    Raises:
        UserError: It is otherwise.
    """
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or name not in names or name in found:
            raise UserError(
                f"'{part}' sets nothing that is known, or sets it twice",
                where=f"{option}={text}",
                expected=", ".join(f"{name}=…" for name in names),
                fix=f"{option}={','.join(f'{name}=1' for name in names)}",
            )
        found[name] = value
    return found


def number(text: str, option: str) -> float:
    """Return a number above 0, which may end in k, M or G.

    Raises:
        UserError: It is none.
    """
    last = MULTIPLES.get(text[-1:], 1.0)
    try:
        value = float(text[:-1] if last != 1.0 else text) * last
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e18:
        raise UserError(f"'{text}' is no amount", where=option, expected="a number such as 200, 60k or 2M")
    return value


def prices_of(text: str | None) -> Prices | None:
    """Return prices of ``in=0.15,out=0.6,cached=0.075``, for a million tokens; None without a text.

    Raises:
        UserError: It says none.
    """
    if text is None:
        return None
    given = {k: number(v, "--price") for k, v in amounts(text, "--price", ("in", "out", "cached")).items()}
    if not {"in", "out"} <= set(given):
        raise UserError(
            "a price for prompts and one for completions are needed",
            where=f"--price={text}",
            expected="money for a million tokens: in=…,out=…, and cached=… where it differs",
            fix="--price=in=0.15,out=0.6",
        )
    return Prices(prompt=given["in"], completion=given["out"], cached=given.get("cached"))


def budget_of(text: str | None, prices: Prices | None) -> Budget:
    """Return the budget of ``tokens=2M,time=1h,money=5``.

    Raises:
        UserError: It says none, or money has no prices.
    """
    given = amounts(text or "", "--budget", ("tokens", "time", "money"))
    if "money" in given and prices is None:
        raise UserError(
            "nobody says what tokens cost",
            where=f"--budget={text}",
            fix="--price=in=0.15,out=0.6, for a million tokens",
        )
    try:
        seconds = parse_duration(given["time"]) if "time" in given else None
    except ValueError as error:
        raise UserError(str(error), where=f"--budget={text}", expected="time=10min") from error
    return Budget(
        tokens=number(given["tokens"], "--budget") if "tokens" in given else None,
        seconds=seconds,
        money=number(given["money"], "--budget") if "money" in given else None,
    )


def limits_of(text: str | None) -> Mapping[str, float | None]:
    """Return most requests and tokens a minute of ``requests=60,tokens=100k``."""
    given = amounts(text or "", "--limit", ("requests", "tokens"))
    return {
        name: number(given[name], "--limit") if name in given else None for name in ("requests", "tokens")
    }


def options_of(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """Return variables of ``NAME=VALUE``, values as JSON where they are some.

    Raises:
        UserError: One sets nothing.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UserError(f"'{pair}' sets nothing", where=option, expected="NAME=VALUE", fix="add '=VALUE'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
