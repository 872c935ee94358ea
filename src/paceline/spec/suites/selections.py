"""Points that claims select of their suite, and why: a claim that looks away from other points says what for.

A claim without ``where`` is about every point of its suite. One that selects points gives a ``points_reason``, except
where another point is the claim's other side: a ratio of four ranks to two is about four. Claims that ask the same at
different points are one claim. A reproduction that selects a setting of ours, such as a shaped link, says that it is
assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from paceline.base.errors import UserError
from paceline.base.families.family import Family, Scalar
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.suites.grammar import Claim, RawScalar, SuiteModel, Tier

LOOPBACK = "loopback"
"""A link that nobody shaped."""
UNREASONED = (
    "'points_reason' with one of paper, premise and expectation; or leave that out of 'where': "
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
                expected="premise or expectation",
            )
        if claim.said is not None:
            yield from _unassumed(claim, family, located, at)
    yield from _parts(model, family, located)


def _parts(model: SuiteModel, family: Family, located: Located) -> Iterator[UserError]:
    """Yield claims that are parts of one: they ask the same, and leave out no point together.

    Parts that are judged apart let one of them hold where the whole does not.
    """
    groups: dict[str, list[tuple[int, Claim]]] = {}
    for number, claim in enumerate(model.claims):
        versus = claim.measure.versus
        sides = (claim.measure.metric, claim.measure.technique, versus)
        groups.setdefault(repr((claim.paper, *sides, claim.expect, claim.needs)), []).append((number, claim))
    for group in groups.values():
        for number, claim in group:
            others = [c for _, c in group if c is not claim]
            if (names := selecting(claim, model, family)) and _whole(names, [claim, *others], model, family):
                yield UserError(
                    f"the claim '{claim.id}' asks the same as '{others[0].id}', and together they leave out no point",
                    where=located.where(("claims", number, "measure", "where", names[0])),
                    expected="one claim about every point, without this 'where'",
                )


def _whole(names: tuple[str, ...], claims: Sequence[Claim], model: SuiteModel, family: Family) -> bool:
    """Return whether one of some claims is about every point, or they select all values of the same parameters."""
    if not claims[1:]:
        return False
    chosen = [selecting(claim, model, family) for claim in claims]
    if () in chosen:
        return True
    taken = {
        tuple(_parsed(name, c.measure.where[name], family) for name in names)
        for c, own in zip(claims, chosen, strict=True)
        if own == names
    }
    return taken == set(product(*(_values(name, model, family) for name in names)))


def _parsed(name: str, raw: RawScalar, family: Family) -> Scalar:
    parameter = family.parameter(name)
    try:
        return parameter.parse(raw) if parameter is not None else raw
    except ValueError:
        return raw  # told where it stands


def _unassumed(claim: Claim, family: Family, located: Located, at: KeyPath) -> Iterator[UserError]:
    """Yield what a reproduction rests on and does not say to be assumed: a model's clock, or a setting of ours."""
    metric = claim.measure.metric
    if family.has(metric) and family.metric(metric).clock == "virtual" and not claim.assumed:
        yield UserError(
            f"the claim '{claim.id}' quotes its paper, and {metric} is the time of a model, which plays stated costs",
            where=located.where((*at, "measure", "metric")),
            expected="'assumed: {…}' with the costs that make the effect, and what they stand for; or a measured time",
        )
    for name, value in claim.measure.where.items():
        parameter = family.parameter(name)
        if parameter is None or not parameter.ours or value in (None, LOOPBACK) or name in claim.assumed:
            continue
        yield UserError(
            f"the claim '{claim.id}' quotes its paper, and selects points by {name}, which we chose: it can create "
            "the effect",
            where=located.where((*at, "measure", "where", name)),
            expected=f"'assumed: {{{name}: …}}' with what it stands for and where the effect ends; or every {name}",
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
