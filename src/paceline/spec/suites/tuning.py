"""Whether settings were chosen fairly: as many trials for each technique, and none that nobody tried.

A technique whose settings were searched for longer looks better for that alone. A suite that chooses settings names
the suite of its trials; both are held against each other here whenever the first one is read. Which trial was best is
in the records of the second; that it was the last of a sweep has to be said. A suite that claims something of a loss
and has no such trials says in words what was tried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Scalar
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.suites.grammar import Claim, RawScalar, Tuning

SUITE_IN_WORDS = re.compile(r"\b[a-z]+/[a-z0-9-]+\b")
"""A suite that words name."""
SWEEP = 3
"""Values of an option from which on trials are a sweep, of which the best lies inside or at the edge."""
EDGE = "edge"
"""The word by which somebody says that the best trial was the last of its sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A technique with all its options, as a suite lists it, and with those that it has by default."""

    technique: str
    label: str
    options: Mapping[str, Scalar]
    defaults: Mapping[str, Scalar]


def trial_errors(
    tuning: Tuning, used: Mapping[KeyPath, Choice], tried: Sequence[Choice], located: Located
) -> Iterator[UserError]:
    """Yield what is unfair about the settings of a suite.

    Args:
        tuning: What the suite says of them.
        used: Its techniques, those of its tiers too, by their places in the file.
        tried: Those of the suite of trials.
        located: The suite's file.
    """
    labels = [choice.label for choice in used.values()]
    for label in tuning.untuned:
        if label not in labels:
            yield UserError(
                f"the suite has no technique '{label}'",
                where=located.where(("tuning", "untuned", label)),
                expected=expected_one_of(label, labels),
            )
    settled = [choice for choice in used.values() if choice.label not in tuning.untuned]
    for place, choice in used.items():
        where = located.where(place)
        trials = {_settings(t): t.label for t in tried if t.technique == choice.technique}
        if choice.label in tuning.untuned:
            like = [s.options for s in settled if s.technique == choice.technique] or [choice.defaults]
            if min(_num_other(choice.options, options) for options in like) > 1:
                yield UserError(
                    f"'{choice.label}' had no trials and settings of its own",
                    where=where,
                    expected=f"those of '{choice.technique}' in this suite, or its defaults, but for one",
                )
        elif len(trials) != tuning.trials:
            yield UserError(
                f"'{choice.label}' had {number_of(len(trials), 'trial')} in {tuning.suite}, others {tuning.trials}",
                where=where,
                expected=(
                    f"{number_of(tuning.trials, 'variant')} of '{choice.technique}' there, or a reason under "
                    "tuning: untuned"
                ),
            )
        elif _settings(choice) not in trials:
            yield UserError(
                f"nobody tried the settings of '{choice.label}' in {tuning.suite}",
                where=where,
                expected="the options of one of " + ", ".join(trials.values()),
            )


def edge_errors(
    words: str, used: Mapping[KeyPath, Choice], tried: Sequence[Choice], located: Located
) -> Iterator[UserError]:
    """Yield the first technique whose setting is the last of a sweep, in a suite whose words do not say so.

    What lies beyond may be better: it is the best that was tried, and not the best. What a technique has by default was
    not chosen.

    Args:
        words: How the settings were chosen.
        used: The suite's techniques by their places.
        tried: Those of the suite of trials.
        located: The suite's file.
    """
    if EDGE in words:
        return
    for place, choice in used.items():
        swept = _swept([t.options for t in tried if t.technique == choice.technique])
        if swept is None:
            continue
        name, values = swept
        chosen = choice.options.get(name)
        if chosen != choice.defaults.get(name) and chosen in (values[0], values[-1]):
            yield UserError(
                f"{name} {chosen:g} of '{choice.label}' is the last that was tried, of "
                f"{', '.join(f'{v:g}' for v in values)}",
                where=located.where(place),
                expected=f"trials on both sides of it, or words that say that it lies at the {EDGE}",
            )
            return


def _swept(options: Sequence[Mapping[str, Scalar]]) -> tuple[str, list[float]] | None:
    """Return the one number in which trials differ, with its values; None where they differ in more, or in less."""
    varied = {key: {given.get(key) for given in options} for given in options for key in given}
    differing = {key: values for key, values in varied.items() if len(values) > 1}
    if len(differing) != 1:
        return None
    ((name, values),) = differing.items()
    numbers = sorted(float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return (name, numbers) if len(numbers) == len(values) >= SWEEP else None


def unstated_errors(claims: Sequence[Claim], tuned: Collection[str], located: Located) -> Iterator[UserError]:
    """Yield the first claim that rests on how settings were chosen, in a suite that does not say so.

    Args:
        claims: Of the suite.
        tuned: Metrics that other settings would change.
        located: The suite's file.
    """
    for place, claim in enumerate(claims):
        if claim.measure.metric in tuned:
            yield UserError(
                f"'{claim.id}' claims {claim.measure.metric}, and nothing says how settings were chosen",
                where=located.where(("claims", place, "measure", "metric")),
                expected="tuning: {suite: …, trials: …, metric: …}, or tuning: {in_words: what was tried}",
            )
            return


def workload_errors(
    tuning: Tuning, workload: Mapping[str, RawScalar], trials: Mapping[str, RawScalar], located: Located
) -> Iterator[UserError]:
    """Yield in what the work of a suite is other than that of its trials."""
    for key, value in trials.items():
        if key in workload and workload[key] != value:
            yield UserError(
                f"settings were tried at {key} {value}",
                where=located.where(("workload", key)),
                expected=f"as in {tuning.suite}, whose trials say little about other work",
            )


def _settings(choice: Choice) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(choice.options.items()))


def _num_other(left: Mapping[str, Scalar], right: Mapping[str, Scalar]) -> int:
    return sum(left[key] != right.get(key) for key in left)
