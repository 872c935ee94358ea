"""What a person chose by name: suites, metrics, filters. Names of earlier versions are read, and said to be old."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.base.aliases import METRICS, SUITES
from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite

Say = Callable[[str], None]
"""Told what a person should know and is no error."""


def expand_suites(names: Sequence[str], *, say: Say, extra: Sequence[Path] = ()) -> list[Suite]:
    """Load suites given by file, by name, or by family (``collectives``: all of its suites).

    Raises:
        UserError: An unknown name, or mistakes in a file.
    """
    known = content.suite_files()
    paths: list[Path] = []
    for name in names:
        in_family = [p for n, p in known.items() if n.startswith(f"{name}/")]
        paths += in_family if in_family and name not in known else [content.find_suite(name)]
    unique = list(dict.fromkeys(p.resolve() for p in paths))
    if not unique:
        raise UserError("no suite given", fix="paceline list suites")
    loaded = [load_suite(path, extra=extra) for path in unique]
    for name in names:
        if name in SUITES.table:
            say(f"the suite '{name}' is called '{SUITES.today(name)}' now")
    for suite in loaded:
        for note in suite.located.notes:
            say(note)
    sources = {s.path: s for suite in loaded for s in suite.sources.values() if "options" in s.lines}
    for source in sources.values():
        say(source.repeated_options)
    return loaded


_SECOND = re.compile(r"[a-z_]+=.*")
_PARTS = re.compile(r",(?=[a-z_]+=)")


def parse_filters(items: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Read ``key=value`` filters, of several values as ``key=one,other``.

    Raises:
        UserError: One is not of this form.
    """
    pairs = []
    for item in items:
        key, separator, value = item.partition("=")
        values = value.split(",")
        if not separator or not key or not all(values):
            raise UserError(
                f"'{item}' is not a filter", where="--filter", expected="key=value, or key=one,other"
            )
        if any(_SECOND.fullmatch(each) for each in values[1:]):
            parts = " ".join(f"--filter {part}" for part in _PARTS.split(item))
            raise UserError(f"'{item}' names several keys", where="--filter", expected="one key", fix=parts)
        pairs += [(key, each) for each in values]
    return tuple(pairs)


def metrics_today(names: Sequence[str], *, say: Say) -> tuple[str, ...]:
    """Return metrics that somebody named as they are called today; each old name leaves a note."""
    for name in names:
        if name in METRICS.table:
            say(f"the metric '{name}' is called '{METRICS.today(name)}' now")
    return tuple(METRICS.today(name) for name in names)


def split_names(items: Sequence[str]) -> tuple[str, ...]:
    """Read names given one by one or separated by commas."""
    return tuple(name for item in items for name in item.split(",") if name)
