"""What is wrong with premises and null arms of a suite's claims, as far as family and techniques can tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Family
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.ledger.papers import LEFT_UNDONE
from paceline.spec.ledger.premises import HERE, Premise, Source
from paceline.spec.suites.grammar import SuiteModel

NUMERIC = ("size", "count", "number", "duration", "rate")
"""Kinds of parameters that are numbers in base units."""


def premise_errors(
    model: SuiteModel, family: Family, labels: Collection[str], located: Located
) -> Iterator[UserError]:
    """Yield every mistake in premises and null arms: names that are not there, and shared ones that no claim has."""
    used: set[str] = set()
    for number, claim in enumerate(model.claims):
        for side, label in (claim.null_arm.model_dump(exclude_none=True) if claim.null_arm else {}).items():
            if label not in labels:
                yield _unknown(
                    "technique", label, labels, located.where(("claims", number, "null_arm", side))
                )
        for place, given in enumerate(claim.premises):
            at: KeyPath = ("claims", number, "premises", place)
            if isinstance(given, Premise):
                yield from _errors(given, at, family, labels, located)
                continue
            used.add(given)
            if given not in model.premises:
                yield UserError(
                    f"the suite has no premise '{given}'",
                    where=located.where(at),
                    expected=expected_one_of(given, model.premises),
                )
    for name, premise in model.premises.items():
        yield from _errors(premise, ("premises", name), family, labels, located)
        if name not in used:
            yield UserError(
                f"no claim has the premise '{name}'",
                where=located.where(("premises", name)),
                expected="its name in the premises of a claim",
            )


def _errors(
    premise: Premise, at: KeyPath, family: Family, labels: Collection[str], located: Located
) -> Iterator[UserError]:
    if premise.reached_by is not None and premise.reached_by not in labels:
        yield _unknown("technique", premise.reached_by, labels, located.where((*at, "reached_by")))
    for key, text in (("says", premise.says), ("machine", premise.machine)):
        if words := next((w for w in LEFT_UNDONE if w in text), None):
            yield UserError(
                f"'{words.strip()}' is said of what nobody has done, and a premise is what a machine or a run lacks",
                where=located.where((*at, key)),
                expected="what is lacking, without that it is lacking until now",
            )
    if premise.names_two_cores and premise.settled_by in ("gpu", "parameters"):
        yield UserError(
            f"a premise that {HERE[0]} meet is not settled by {premise.settled_by}",
            where=located.where((*at, "settled_by")),
            expected="time or setting; or a machine that is not here",
        )
    if not premise.within_reach and not premise.names_more:
        yield UserError(
            f"its machine has neither {HERE[0]} nor what they lack, and it is settled by {premise.settled_by}",
            where=located.where((*at, "machine")),
            expected=f"'{HERE[0]}; …' with another workload or model that can be made there; a GPU, or more cores",
        )
    for key, source in (("of", premise.of), ("over", premise.over)):
        if source is not None:
            yield from _source_errors(source, (*at, key), family, labels, located)


def _source_errors(
    source: Source, at: KeyPath, family: Family, labels: Collection[str], located: Located
) -> Iterator[UserError]:
    known = {
        "technique": labels,
        "metric": [m.name for m in family.metrics],
        "quantity": [q.name for q in family.quantities],
        "parameter": [p.name for p in family.parameters if p.kind in NUMERIC],
    }
    for kind, names in known.items():
        name = getattr(source, kind)
        named = kind == "metric" and name is not None and family.has(name)
        if name is not None and name not in names and not named:
            yield _unknown(kind, name, names, located.where((*at, kind)))
    for key, value in source.where.items():
        where = located.where((*at, "where", key))
        parameter = family.parameter(key)
        if parameter is None:
            yield _unknown("parameter", key, [p.name for p in family.parameters], where)
            continue
        try:
            parameter.parse(value)
        except ValueError as error:
            yield UserError(str(error), where=where)


def _unknown(kind: str, name: str, known: Collection[str], where: str) -> UserError:
    owner = "the suite" if kind == "technique" else "the family"
    what = "numeric parameter" if kind == "parameter" else kind
    return UserError(f"{owner} has no {what} '{name}'", where=where, expected=expected_one_of(name, known))
