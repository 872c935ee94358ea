"""Several instances within a launch: which suites may ask for them."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.base.errors import UserError
from paceline.base.families.family import Family
from paceline.spec.files.yaml_file import Located
from paceline.spec.suites.grammar import SuiteModel


def instance_errors(model: SuiteModel, family: Family, located: Located) -> Iterator[UserError]:
    """Refuse several instances where a suite has an operation that cannot be made anew within a launch.

    Args:
        model: The suite's.
        family: The suite's.
        located: Where its keys stand.
    """
    places: list[tuple[tuple[str, ...], object]] = [(("protocol", "instances"), model.protocol.instances)]
    for name, tier in model.tiers.items():
        places.append((("tiers", name, "protocol", "instances"), tier.protocol.get("instances", 1)))
    fixed = [name for name in _operations(model, family) if not _renews(family, name)]
    for at, number in places:
        if fixed and isinstance(number, int) and number > 1:
            yield UserError(
                f"{family.name} cannot make {fixed[0]} anew within a launch",
                where=located.where(at),
                expected="instances: 1; launches: N replicates it",
            )


def _operations(model: SuiteModel, family: Family) -> list[str]:
    """Return the operations that a suite names in any tier."""
    key, tiers = family.operation_key, list(model.tiers.values())
    fixed = [model.workload, *(t.workload for t in tiers)]
    swept = [model.matrix, *model.zip, *(t.matrix for t in tiers), *(z for t in tiers for z in t.zip or [])]
    named = [*(s[key] for s in fixed if key in s), *(n for s in swept for n in s.get(key, []))]
    return list(dict.fromkeys(str(name) for name in named))


def _renews(family: Family, name: str) -> bool:
    """Tell whether an operation can be made anew; of one that the family lacks, the parameter's own error tells."""
    if not family.operations:
        return False
    found = family.operations.get(name)
    return found is None or bool(found.renews)
