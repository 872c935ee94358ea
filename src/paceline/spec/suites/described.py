"""Numbers that a claim's description gives of an option, held against the arms that it measures.

``against five directions a step`` is a mistake where the arm has ten: the number was that of another trial, or of an
earlier suite, and readers have no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from paceline.base.errors import UserError
from paceline.base.families.family import Scalar
from paceline.spec.files.yaml_file import Located
from paceline.spec.suites.grammar import Claim, SuiteModel
from paceline.spec.suites.tuning import Choice

SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
IN_WORDS: Mapping[str, int] = {
    **{word: n for n, word in enumerate(SMALL)},
    "twenty": 20,
    "fifty": 50,
    "hundred": 100,
}
FROM = 2
"""The least number that is one: ``one`` is said of much that nobody counts."""


def described_errors(model: SuiteModel, used: Iterable[Choice], located: Located) -> Iterator[UserError]:
    """Yield every number of a description that no measured arm has of the option which it names.

    Args:
        model: The suite.
        used: Its techniques with all their options.
        located: Its file.
    """
    arms = {choice.label: choice.options for choice in used}
    varied = {*model.workload, *model.matrix, *(key for group in model.zip for key in group)}
    for number, claim in enumerate(model.claims):
        for said, name, has in _contradicted(claim, arms, varied):
            yield UserError(
                f"the claim '{claim.id}' speaks of {said}, and its arms have {has} of '{name}'",
                where=located.where(("claims", number, "description")),
                expected="the number of an arm that it measures",
            )


def _contradicted(
    claim: Claim, arms: Mapping[str, Mapping[str, Scalar]], varied: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    versus = claim.measure.versus
    other = versus if versus is None or isinstance(versus, str) else versus.technique
    measured = [
        arms[label] for label in (claim.measure.technique, other) if label is not None and label in arms
    ]
    points = {*varied, *claim.measure.where}
    # what can be counted is named in the plural
    for name in dict.fromkeys(n for arm in measured for n in arm if n not in points and n.endswith("s")):
        has = sorted({value for arm in measured if type(value := arm.get(name)) is int})
        words = re.escape(name.replace("_", " ").removesuffix("s"))
        for said, first in re.findall(rf"(\b([a-z]+|\d+)[ -]{words}s?\b)", claim.description.lower()):
            count = int(first) if first.isdigit() else IN_WORDS.get(first, 0)
            if has and count >= FROM and count not in has:
                yield said, name, " and ".join(map(str, has))
