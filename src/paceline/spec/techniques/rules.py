"""What may be wrong with what a technique says about itself, seen from its family and operations."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Family, family_names, load_family
from paceline.base.families.operation import Operation, Promises
from paceline.base.techniques.declarations import ARGUMENT, OPTION, Names, mistakes
from paceline.base.techniques.fidelity import mistakes_in
from paceline.base.techniques.requirements import Requirements
from paceline.base.techniques.technique import Technique, TechniqueSource


def strange_operations(info: Technique) -> list[str]:
    """Return what a technique implements and its family does not have; an internal family says nothing of it."""
    known = operation_names(load_family(info.family))
    return [operation for operation in info.implements if known and operation not in known]


def technique_errors(source: TechniqueSource, path: Path | None = None) -> Iterator[UserError]:
    """Yield every mistake in a technique's family, operations, properties, requirements and fidelity card.

    Args:
        source: The technique, as its source says it.
        path: Its file as a person named it; by default as it was found.
    """
    info = source.info
    at = (replace(source, path=path) if path else source).where
    if info.family not in family_names():
        shown = [name for name in family_names() if not load_family(name).internal]
        yield UserError(
            f"'{info.name}' is of the family '{info.family}', which does not exist",
            where=at("family"),
            expected=expected_one_of(info.family, shown),
        )
        return
    family = load_family(info.family)
    known = operation_names(family)
    strangers = strange_operations(info)
    for operation in strangers:
        yield UserError(
            f"'{info.name}' implements '{operation}', which the {info.family} family does not have",
            where=at("implements"),
            expected=expected_one_of(operation, known),
            fix="paceline list operations",
        )
    if strangers:
        return
    whose = f"techniques of {' or '.join(info.implements)} have"
    yield from mistakes(
        info.properties,
        property_kinds(family, info),
        noun="property",
        whose=whose,
        at=lambda key: at(f"properties.{key}"),
        names=_own_names(source),
    )
    yield from mistakes(
        {key: getattr(info.requires, key) for key in source.keys("requires")},
        requirement_kinds(family, info),
        noun="requirement",
        whose=whose,
        at=lambda key: at(f"requires.{key}"),
    )
    if info.fidelity is not None:
        yield from mistakes_in(info.fidelity, info.options, source.settings, at=at)


def _own_names(source: TechniqueSource) -> Names:
    """Return the names that properties may speak of; those that the source does not tell are left out."""
    names: dict[str, Collection[str]] = {OPTION: source.options}
    return names if source.arguments is None else {**names, ARGUMENT: source.arguments}


def property_kinds(family: Family, info: Technique) -> list[type]:
    """Return what a technique may promise: a declaration of each operation that it implements, without repetition."""
    return _kinds(family, info, Promises, "properties")


def requirement_kinds(family: Family, info: Technique) -> list[type]:
    """Return what a technique may require: a declaration of each operation that it implements, without repetition."""
    return _kinds(family, info, Requirements, "requirements")


def operation_names(family: Family) -> tuple[str, ...]:
    """Return the operations that a family's techniques may implement; none where any will do."""
    parameter = family.parameter(family.operation_key)
    return parameter.choices if parameter is not None else ()


def _kinds(family: Family, info: Technique, without: type, field: str) -> list[type]:
    operations = [family.operations.get(name) for name in info.implements]
    kinds = [getattr(o, field) if isinstance(o, Operation) else without for o in operations]
    return list(dict.fromkeys(kinds))
