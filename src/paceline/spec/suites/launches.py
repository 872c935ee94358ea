"""How many launches a block gets: a fixed number, or a range in which it is measured until decided."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.base.units import parse_duration
from paceline.stats.sequential import FIRST_LAUNCHES, MOST_LAUNCHES

LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """A number of launches, or a range of them."""

    first: int
    most: int | None = None
    """None for a fixed number."""

    @property
    def text(self) -> str:
        """As it is written."""
        return str(self.first) if self.most is None else f"{self.first}..{self.most}"

    def until_decided(self) -> Launches:
        """Return the range in which launches are added until decided; of a number, the range that begins with it.

        Raises:
            ValueError: It begins with fewer than a first look needs.
        """
        if self.first < FIRST_LAUNCHES:
            raise ValueError(
                f"until: decided needs {FIRST_LAUNCHES} launches before its first look, not {self.first}"
            )
        if self.most is not None:
            return self
        return Launches(first=self.first, most=max(self.first, MOST_LAUNCHES))


def parse_launches(value: int | str) -> Launches:
    """Read ``5`` or ``5..60``.

    Raises:
        ValueError: It is neither, or out of bounds.
    """
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", str(value))
    if isinstance(value, bool) or found is None:
        raise ValueError(f"'{value}' is neither a number of launches nor a range such as 5..{MOST_LAUNCHES}")
    first, most = int(found[1]), int(found[2]) if found[2] else None
    if first < 1:
        raise ValueError(f"launches {value}: must be greater than or equal to 1")
    if max(first, most or 0) > LIMIT:
        raise ValueError(f"launches {value}: must be less than or equal to {LIMIT}")
    if most is not None and most < first:
        raise ValueError(f"launches {value}: the range ends before it begins")
    return Launches(first=first, most=most)


def asked_launches(
    launches: int | str | None, budget: str | float | None
) -> tuple[Launches | None, float | None]:
    """Read what a person asked for in the place of the suites' own launches.

    Args:
        launches: A number, or a range in which it is measured until decided.
        budget: Time after which no launch starts.

    Returns:
        The launches, and the budget's seconds.

    Raises:
        ValueError: One cannot be read, or a budget meets a fixed number of launches.
    """
    found = parse_launches(launches) if launches is not None else None
    if found is not None and found.most is not None:
        found = found.until_decided()
    budget_s = parse_duration(budget) if budget is not None else None
    if budget_s == 0:
        raise ValueError("a budget of no time measures nothing")
    if budget_s is not None and found is not None and found.most is None:
        raise ValueError(
            f"a fixed number of launches ({launches}) takes no budget; give a range such as {launches}..60"
        )
    return found, budget_s
