"""Whether settings were chosen fairly: as many trials for each technique, and none that nobody tried.

A technique whose settings were searched for longer looks better for that alone. A suite that chooses settings names
the suite of its trials; both are held against each other here whenever the first one is read. Which trial was best is
in the records of the second. A suite that claims something of a loss and has no such trials says in words what was
tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Scalar
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.suites.grammar import Claim, RawScalar, Tuning


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
