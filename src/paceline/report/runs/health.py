"""What the harness's own measured tests found, how old that is, and which of them do not hold or told nothing."""

from __future__ import annotations

from datetime import date

from paceline.base.counting import number_of
from paceline.records.store.health import CANNOT_TELL, FAILS, Figure, Health, MeasuredTest
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.words.estimates import ABSENT

OLD_DAYS = 7
"""Nights run these tests: what is older than this says that nights do not."""
MAX_REASON = 300
"""Characters of a reason on the page."""


def facts(health: Health, built: date | None) -> list[tuple[str, str]]:
    """Return what the page says of a run as a whole: names and texts.

    Args:
        health: The run.
        built: The day on which the site is built; None leaves the age out.
    """
    age = "" if built is None else f", {age_text((built - health.day).days)}"
    machine = health.machine
    return [
        ("outcomes", ", ".join(f"{count} {outcome}" for outcome, count in health.counts().items())),
        ("run on", f"{health.day}{age}"),
        (
            "commit",
            (health.commit[:12] or ABSENT) + (" and changes that are in none" if health.changed else ""),
        ),
        (
            "machine",
            f"{machine.processor}, {number_of(machine.cores, 'core')}; Python {machine.python}, Linux {machine.kernel}",
        ),
    ]


def age_text(days: int) -> str:
    """Return an age in words, from days between the run and the build of the site."""
    if days < 0:
        return "which is after the day on which this site was built"
    if days == 0:
        return "the day on which this site was built"
    return f"{number_of(days, 'day')} before this site was built" + (": it is old" if days > OLD_DAYS else "")


def open_grid(health: Health) -> Grid:
    """Return the tests that do not hold, then those that could not be told, with their figures and why."""
    rows = [
        [
            Cell(text=name.removeprefix("tests/"), kind="text mono"),
            Cell(text=outcome, kind="text bad" if outcome == FAILS else "text quiet"),
            Cell(
                text="; ".join(f"{what}: {figure_text(f)}" for what, f in test.figures().items()) or ABSENT,
                kind="text",
            ),
            Cell(text=why(test), kind="text prose"),
        ]
        for outcome in (FAILS, CANNOT_TELL)
        for name, test in sorted(health.outcomes.items())
        if test.outcome == outcome
    ]
    return rows_grid(
        "measured tests that do not hold or told nothing", ("test", "outcome", "figures", "why"), rows
    )


def figure_text(figure: Figure) -> str:
    """Return a figure with its interval, unit and bounds."""
    text = ABSENT if figure.value is None else f"{figure.value:.4g}"
    if figure.low is not None and figure.high is not None:
        text += f" [{figure.low:.4g}, {figure.high:.4g}]"
    bounds = [
        f"{bound:.4g} at {word}"
        for bound, word in ((figure.least, "least"), (figure.most, "most"))
        if bound is not None
    ]
    return f"{text} {figure.unit}" + (f" ({', '.join(bounds)})" if bounds else "")


def why(test: MeasuredTest) -> str:
    """Return why a test did not pass, and what others took of the machine meanwhile."""
    last, num_tries = test.tries[-1], len(test.tries)
    others, stolen = max(t.others_cores for t in test.tries), max(t.stolen for t in test.tries)
    tried = f" in {number_of(num_tries, 'try')}" if num_tries > 1 else ""
    reason = last.reason if len(last.reason) <= MAX_REASON else f"…{last.reason[-MAX_REASON:]}"
    taken = number_of(others, "core", form=".2f")
    return f"{reason or ABSENT} (others took {taken}{tried}, {stolen:.1%} of the time was stolen)"
