"""How many launches a block gets: a fixed number, or a range in which it is measured until decided."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.stats.sequential import FIRST_LAUNCHES, MOST_LAUNCHES

LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """A number of launches, or a range of them."""

    first: int
    most: int | None = None
    """None for a fixed number."""

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
