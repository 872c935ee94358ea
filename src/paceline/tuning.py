"""Whether settings were chosen fairly: as many trials for each technique, and none that nobody tried.

A technique whose settings were searched for longer looks better for that alone. A suite that chooses settings names
the suite of its trials; both are held against each other here whenever the first one is read. Which trial was best is
in the records of the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import UserError, expected_one_of
from paceline.family import Scalar
from paceline.grammar import Tuning
from paceline.yamlfile import Located


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A technique with all its options, as a suite lists it."""

    technique: str
    label: str
    options: Mapping[str, Scalar]


def trial_errors(
    tuning: Tuning, used: Sequence[Choice], tried: Sequence[Choice], located: Located
) -> Iterator[UserError]:
    """Yield what is unfair about the settings of a suite.

    Args:
        tuning: What the suite says of them.
        used: Its techniques.
        tried: Those of the suite of trials.
        located: The suite's file, for places.
    """
    labels = [choice.label for choice in used]
    for label in tuning.untuned:
        if label not in labels:
            yield UserError(
                f"the suite has no technique '{label}'",
                where=located.where(("tuning", "untuned", label)),
                expected=expected_one_of(label, labels),
            )
    for place, choice in enumerate(used):
        if choice.label in tuning.untuned:
            continue
        where = located.where(("techniques", place))
        trials = [t for t in tried if t.technique == choice.technique]
        if len(trials) != tuning.trials:
            yield UserError(
                f"'{choice.label}' had {len(trials)} trials in {tuning.suite}, others {tuning.trials}",
                where=where,
                expected=f"{tuning.trials} variants of '{choice.technique}' there, or a reason under tuning: untuned",
            )
        elif all(dict(t.options) != dict(choice.options) for t in trials):
            yield UserError(
                f"nobody tried the settings of '{choice.label}' in {tuning.suite}",
                where=where,
                expected="the options of one of " + ", ".join(t.label for t in trials),
            )
