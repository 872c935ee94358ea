"""Operations for ``paceline list operations`` and ``paceline show OPERATION``."""

from __future__ import annotations

from typing import Any

from paceline.base.families.family import family_names, load_family
from paceline.base.families.operation import Operation
from paceline.spec import content
from paceline.spec.techniques.interface import interface_of


def listed_operations() -> list[tuple[str, str]]:
    """Return every operation, as FAMILY/OPERATION, with its sentence, in the order of ``docs/operations.md``."""
    return [(place, operation.summary) for place, operation in operations_named().items()]


def operations_named(name: str | None = None) -> dict[str, Operation]:
    """Return the operations of a name, with or without its family before it; without a name all of them."""
    families = (load_family(family) for family in family_names())
    every = {f"{f.name}/{key}": found for f in families for key, found in f.operations.items()}
    return {key: found for key, found in every.items() if name in (None, key, key.partition("/")[2])}


def operation_card(place: str, operation: Operation) -> dict[str, Any]:
    """Return what somebody needs to know who writes a technique or a suite of an operation."""
    family = load_family(place.partition("/")[0])
    implemented = (s.info for s in content.techniques(family.name).values())
    interface = interface_of(family.name, operation)
    called = [] if interface is None else [method.signature for method in interface.methods]
    return {
        "operation": operation.name,
        "family": family.name,
        "summary": operation.summary,
        **({"run": [a.text for a in operation.arguments]} if operation.arguments else {"called": called}),
        "parameters": {
            p.name: p.doc
            for p in family.parameters_for(operation.name)
            if p.doc and p.name != family.operation_key
        },
        "metrics": [m.name for m in operation.metrics],
        "techniques": sorted(info.name for info in implemented if operation.name in info.implements),
        "begin": f"paceline new technique NAME --op {family.name}/{operation.name}",
        "reference": f"docs/operations.md: {family.name}/{operation.name}",
        "source": f"src/paceline/families/{family.name}/ops/{operation.name}/",
    }
