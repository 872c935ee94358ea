"""Opponents of claims: a claim that quotes its paper and compares two sides says whom the paper itself beats.

The paper's own opponent is an arm of the suite, by its label, and stands on one side of the claim; or another arm
stands there, and the claim says why that one is no easier to beat. Where it does not, it is a conformance
(``paceline.analysis.claims.reproductions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.base.errors import UserError, expected_one_of
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.suites.grammar import Claim, SuiteModel


def compares(claim: Claim) -> bool:
    """Return whether a claim is about two sides, and not about a value."""
    return claim.measure.versus is not None and not claim.expect.kind.startswith("value")


def opponent_errors(
    model: SuiteModel, papers: Mapping[str, str | None], located: Located
) -> Iterator[UserError]:
    """Yield every claim that quotes its paper and does not say whom that beats, or says it of no arm that is there.

    Args:
        model: The suite.
        papers: Labels of its techniques, each with the paper of that technique.
        located: Where its keys stand.
    """
    for number, claim in enumerate(model.claims):
        at: KeyPath = ("claims", number, "said")
        if claim.said is None:
            continue
        against = claim.said.against
        if against is None:
            if compares(claim):
                yield UserError(
                    f"the claim '{claim.id}' quotes its paper, and does not say whom that beats",
                    where=located.where(at),
                    expected="'against: {paper: …, arm: …}': the paper's own baseline, and which arm is that",
                )
        elif not compares(claim):
            yield UserError(
                f"the claim '{claim.id}' is about a value, and beats nobody",
                where=located.where((*at, "against")),
                expected="no 'against'",
            )
        elif against.arm is not None and against.arm not in papers:
            yield UserError(
                f"'{against.arm}' is not among the techniques",
                where=located.where((*at, "against", "arm")),
                expected=expected_one_of(against.arm, papers),
            )
        elif against.arm is not None and papers[against.arm] == claim.paper and len({*_sides(claim)}) > 1:
            yield UserError(
                f"'{against.arm}' is a technique of the paper itself, and no opponent of it",
                where=located.where((*at, "against", "arm")),
                expected="the other side, where that is the paper's baseline; or no 'arm'",
            )
        elif against.because and against.arm in _sides(claim):
            yield UserError(
                f"the claim '{claim.id}' is held against its paper's own opponent, and gives a reason for another",
                where=located.where((*at, "against", "because")),
                expected="no 'because'",
            )


def _sides(claim: Claim) -> tuple[str | None, ...]:
    versus = claim.measure.versus
    if versus is None or isinstance(versus, str):
        return claim.measure.technique, versus
    return claim.measure.technique, versus.technique or claim.measure.technique
