"""The suites that are shipped, each read and checked once in a process: reading all of them takes two seconds."""

from __future__ import annotations

from functools import cache

from paceline.spec import content
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite


@cache
def shipped(name: str) -> Suite:
    """Return a shipped suite; whoever wants another one changes a copy (``dataclasses.replace``)."""
    return load_suite(content.suite_files()[name])


def all_shipped() -> dict[str, Suite]:
    """Return all of them by name."""
    return {name: shipped(name) for name in content.suite_files()}
