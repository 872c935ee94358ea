"""Code of a user's own in points: the files that parameters name, and their digest as a part of the point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError
from paceline.base.families.family import Family, Params, Scalar
from paceline.base.files.own_code import OwnCode, find_code
from paceline.spec.suites.suite import Suite

SOURCES = "sources"
"""The parameter that holds the digest: a point with other code is another point."""


def named_code(family: Family, params: Params) -> dict[str, str]:
    """Return what a point names in files of the user's, by parameter."""
    found = {}
    for parameter in family.parameters_for(str(params.get(family.operation_key, ""))):
        value = params.get(parameter.name)
        if parameter.is_code is not None and isinstance(value, str) and parameter.is_code(value):
            found[parameter.name] = value
    return found


def code_of(suite: Suite, params: Params) -> OwnCode | None:
    """Return the files that a point names; None where it names none.

    Raises:
        UserError: One is missing or is no Python, or does not have the name.
    """
    named = named_code(suite.family, params)
    if not named:
        return None
    return _found(tuple(sorted(named.items())), suite.code_folder or suite.path.resolve().parent)


@lru_cache(maxsize=256)
def _found(named: tuple[tuple[str, str], ...], folder: Path) -> OwnCode:
    return find_code(dict(named), folder)


def with_code(suite: Suite, params: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return a point with the digest of its code.

    Raises:
        UserError: See ``code_of``; or the suite states another digest.
    """
    try:
        code = code_of(suite, params)
    except UserError as error:
        raise UserError(
            error.what, where=place_of(suite, error.where or ""), expected=error.expected, fix=error.fix
        ) from error
    if SOURCES not in params:
        return params
    stated, now = params[SOURCES], code.digest if code else None
    if stated is not None and stated != now:
        raise UserError(
            f"the code is {now or 'none'}, not {stated}",
            where=place_of(suite, SOURCES),
            expected="the digest of the files as they are",
            fix=f"put the files back, or write {SOURCES}: {now}" if now else f"leave {SOURCES} out",
        )
    return {**params, SOURCES: now}


def place_of(suite: Suite, key: str) -> str:
    """Return where a suite names a parameter, or its workload where it does not."""
    for at in (("workload", key), ("matrix", key)):
        if at in suite.located.lines:
            return suite.located.where(at)
    return suite.located.where(("workload",))


def all_code(suite: Suite, blocks: Iterable[Mapping[str, Any]]) -> dict[str, OwnCode]:
    """Return the code of all points of a plan's blocks of a suite, by digest."""
    found: dict[str, OwnCode] = {}
    for block in blocks:
        params = block["params"]
        assert isinstance(params, dict)
        if block["suite"] == suite.name and params.get(SOURCES) is not None:
            code = code_of(suite, params)
            assert code is not None
            digest = str(params[SOURCES])
            # Points with the same files may name other objects in them.
            earlier = found[digest].places if digest in found else {}
            found[digest] = replace(code, places={**earlier, **code.places})
    return found
