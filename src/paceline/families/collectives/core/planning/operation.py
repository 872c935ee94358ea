"""What the control plane knows about a collective beyond what every family's operations have; free of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.base.families.family import Params, load_family
from paceline.base.families.operation import OPERATION_KEY, Operation

FAMILY = "collectives"
SIZE = "size_bytes"
ROOT = "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation(Operation):
    """One collective."""

    interface: str = "api.problem:Collective"
    sharded: bool = False
    """True when S is the sum of n equal shares."""
    # From nccl-tests, doc/PERFORMANCE.md, such as 2(n − 1)/n for an all-reduce.
    bus_factor: Callable[[int], float] | None = None
    """busbw = algbw × factor(n); None where bandwidth is not defined."""
    min_ranks: int = 1
    same_everywhere: bool = False
    """True when every rank ends with the same result, which is what the proof of a codec compares."""
    renews: bool = True
    computes: bool = False
    """True when a call also computes: the communication that computation does not hide is measured."""

    @property
    def sized(self) -> bool:
        """True when ``size_bytes`` gives S; other operations have parameters of their own."""
        return self._has(SIZE)

    @property
    def rooted(self) -> bool:
        """True when one rank is the root."""
        return self._has(ROOT)

    def _has(self, parameter: str) -> bool:
        return any(p.name == parameter for p in self.parameters)


def operation_of(params: Params) -> CollectiveOperation:
    """Return the operation of a point.

    Raises:
        KeyError: The family has none of that name.
    """
    found = load_family(FAMILY).operations[str(params[OPERATION_KEY])]
    assert isinstance(found, CollectiveOperation)
    return found


def same_everywhere() -> tuple[str, ...]:
    """Return the names of the operations after which every rank holds the same result."""
    operations = load_family(FAMILY).operations.values()
    return tuple(o.name for o in operations if isinstance(o, CollectiveOperation) and o.same_everywhere)
