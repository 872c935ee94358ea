"""Exceptions that carry an exit code and tell a person how to go on.

A ``UserError`` is something that a person can fix: its text says what is wrong, where (``file:line:key``),
what was expected, and which command mends it. Anything that is our own invariant is an ``assert``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from paceline.base.counting import number_of

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_USAGE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INCONCLUSIVE = 4
EXIT_INCORRECT = 5
EXIT_INCOMPARABLE = 6
EXIT_FAULT = 70
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141

EXIT_CODES: dict[int, str] = {
    EXIT_OK: "ok",
    EXIT_REGRESSION: "regression in `gate` or `nightly`, a refuted claim, a record that `reproduce` found different, "
    "a promise that `calibrate` found broken, or a technique that `check` found not to conform",
    EXIT_USAGE: "usage error or bad input",
    EXIT_INFRASTRUCTURE: "a case has no number: infrastructure failed (the same command may succeed later), or a "
    "technique crashed, hung or took too much memory",
    EXIT_INCONCLUSIVE: "inconclusive (only with --strict)",
    EXIT_INCORRECT: "a technique gave a wrong result",
    EXIT_INCOMPARABLE: "the two sides cannot be compared, or a record cannot be measured again",
    EXIT_FAULT: "a fault of paceline itself: nothing was decided; the traceback belongs in a report",
    EXIT_INTERRUPTED: "Ctrl-C, except while measuring (3)",
    EXIT_UNREAD: "the reader closed the output before its end, as `head` does",
}
"""Every exit code of the command line and what it means (docs/cli.md lists the same table)."""


class PacelineError(Exception):
    """Base of all errors that the command line prints without a traceback."""

    exit_code = EXIT_INFRASTRUCTURE

    def reword(self, words: Callable[[str], str]) -> None:
        """Put this error's texts into other words, such as those of a Python caller, who gave no options."""
        self.args = tuple(words(a) if isinstance(a, str) else a for a in self.args)


class UserError(PacelineError):
    """A mistake in what a person gave us.

    Args:
        what: One sentence: what is wrong.
        where: ``file:line:key``, or a command-line option with its value behind ``=``; None when there is no place.
        expected: What would have been accepted.
        fix: The command, or the edit, that mends it.
    """

    exit_code = EXIT_USAGE

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.fix = fix
        super().__init__(self.render())

    def render(self) -> str:
        """Lay the parts out, one a line, leaving out those that are absent."""
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def reword(self, words: Callable[[str], str]) -> None:
        """Put each part into other words; a fix is shown with its title, as it is printed."""
        self.what = words(self.what)
        self.where = self.where and words(self.where)
        self.expected = self.expected and words(self.expected)
        self.fix = self.fix and words(f"fix: {self.fix}").removeprefix("fix: ")
        self.args = (self.render(),)


class UserErrors(UserError):
    """Several mistakes found in one pass, so that a person mends them all at once."""

    def __init__(self, errors: Iterable[UserError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(error.render() for error in self.errors))

    def reword(self, words: Callable[[str], str]) -> None:
        """Put each of the mistakes into other words."""
        for error in self.errors:
            error.reword(words)
        self.what = "\n".join(error.render() for error in self.errors)
        self.args = (self.what,)


class PrerequisiteError(UserError):
    """An optional dependency or a capability of the machine is missing; ``fix`` installs it."""


class InfrastructureError(PacelineError):
    """The machine, not the input, failed: full disk, lost process, unreachable daemon."""

    exit_code = EXIT_INFRASTRUCTURE


class IncorrectError(PacelineError):
    """A technique's result did not pass its oracle."""

    exit_code = EXIT_INCORRECT


class IncomparableError(PacelineError):
    """Two results differ in host class, contract, dtype, scale or image class."""

    exit_code = EXIT_INCOMPARABLE


MOST_SHOWN = 16
"""More valid values than this are not all listed: who reads the error looks for one of them."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that looks most like ``name``, or None when nothing comes close."""
    matches = difflib.get_close_matches(name, sorted(choices), n=1, cutoff=0.55)
    return matches[0] if matches else None


def expected_one_of(name: str, choices: Iterable[str]) -> str:
    """Describe the valid values and, when one is close to ``name``, suggest it.

    Of many values those are shown that look most like it.
    """
    options = sorted(set(choices))
    shown = ", ".join(options) if options else "nothing (there is none)"
    many = len(options) > MOST_SHOWN
    if many:
        alike = difflib.get_close_matches(name, options, n=MOST_SHOWN // 2, cutoff=0.0)
        shown = f"{', '.join(alike)} and {number_of(len(options) - len(alike), 'other')}"
    match = nearest(name, options)
    return f"one of: {shown}" + (f" — did you mean '{match}'?" if match else "")
