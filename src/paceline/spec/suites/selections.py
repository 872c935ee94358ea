"""Points that claims select of their suite, and why: a claim that looks away from other points says what for.

A claim without ``where`` is about every point of its suite. One that selects points gives a ``points_reason``, except
where another point is the claim's other side: a ratio of four ranks to two is about four.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Family, Scalar
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.suites.grammar import Claim, RawScalar, SuiteModel, Tier

UNREASONED = (
    "'points_reason' with one of paper, premise, expectation and asked_by; or leave that out of 'where': "
    "the claim then is about every point"
)


def selecting(claim: Claim, suite: SuiteModel, family: Family) -> tuple[str, ...]:
    """Return the parameters by which a claim leaves out points of its suite, other than those of its other side."""
    versus = claim.measure.versus
    compared = {} if versus is None or isinstance(versus, str) else versus.where
    return tuple(
        name for name in claim.measure.where if name not in compared and len(_values(name, suite, family)) > 1
    )


def selection_errors(model: SuiteModel, family: Family, located: Located) -> Iterator[UserError]:
    """Yield every claim that selects points without a reason, gives one for nothing, or one that it cannot have."""
    for number, claim in enumerate(model.claims):
        at: KeyPath = ("claims", number)
        names, reason = selecting(claim, model, family), claim.points_reason
        if names and reason is None:
            yield UserError(
                f"the claim '{claim.id}' selects points by {', '.join(names)} and does not say why",
                where=located.where((*at, "measure", "where", names[0])),
                expected=UNREASONED,
            )
        elif reason is not None and not claim.measure.where:
            yield UserError(
                f"the claim '{claim.id}' gives a reason for its points and selects none",
                where=located.where((*at, "points_reason")),
                expected="no 'points_reason'",
            )
        elif reason is not None and reason.paper is not None and claim.paper is None:
            yield UserError(
                f"the claim '{claim.id}' is a bound of the suite's own: no paper fixes its points",
                where=located.where((*at, "points_reason", "paper")),
                expected="premise, expectation or asked_by",
            )
        elif reason is not None:
            yield from _strange_askers(claim, model, located.where((*at, "points_reason", "asked_by")))


def _strange_askers(claim: Claim, suite: SuiteModel, where: str) -> Iterator[UserError]:
    """Yield the claims that are said to ask the same elsewhere, and do not."""
    assert claim.points_reason is not None
    metric, expect = claim.measure.metric, claim.expect
    same = [c.id for c in suite.claims if c is not claim and (c.measure.metric, c.expect) == (metric, expect)]
    for given in claim.points_reason.asked_by or ():
        if given not in same:
            yield UserError(
                f"the claim '{claim.id}' says that '{given}' asks the same at other points, and it does not",
                where=where,
                expected=expected_one_of(given, same),
            )


def _values(name: str, suite: SuiteModel, family: Family) -> set[Scalar]:
    """Return the values that a parameter has at points of a suite; a quick look is no point of its matrix."""
    parameter = family.parameter(name)
    if parameter is None:
        return set()
    found: set[Scalar] = set()
    for tier in (None, *(tier for key, tier in suite.tiers.items() if key != "quick")):
        for raw in _raw_values(name, suite, tier):
            try:
                found.add(parameter.default if raw is None else parameter.parse(raw))
            except ValueError:
                continue  # told where it stands
    return found


def _raw_values(name: str, suite: SuiteModel, tier: Tier | None) -> list[RawScalar]:
    """Return a parameter's values at the points of a tier as the suite writes them; None stands for the default."""
    zips = tier.zip if tier and tier.zip is not None else suite.zip
    varied = {**suite.matrix, **(tier.matrix if tier else {})}
    for group in zips:
        varied.update(group)
    workload = {**suite.workload, **(tier.workload if tier else {})}
    return varied.get(name, [workload.get(name)])
