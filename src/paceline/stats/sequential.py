"""Measuring until decided: when a comparison is looked at, and what looking several times costs.

A comparison is judged at a few looks, at each after half as many launches again as at the one before. Every look uses
the same nominal level (Pocock 1977), chosen so that all of them together claim a difference that is not there in at
most 5 % of comparisons. Only a difference at that level ends the launches. Once they have ended, the interval pays for
the looks that were made, not for those that were planned, at the level at which so many looks all hold the truth in
95 % of comparisons (repeated confidence intervals, Jennison and Turnbull 1984).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from paceline.base.counting import number_of

FIRST_LAUNCHES = 3
"""Fewest launches before a first look: two give an interval with one degree of freedom, which decides nothing."""
MOST_LAUNCHES = 60
"""Most launches where a suite says no other number."""
GROWTH = 1.5
"""Launches at a look over those at the one before."""
NEARLY = 0.8
"""A look after more than this share of the most launches is the last one, after all of them."""
OVERALL = 0.05
NOMINAL: Mapping[int, float] = {
    1: 0.05,
    2: 0.0278,
    3: 0.0198,
    4: 0.0156,
    5: 0.0128,
    6: 0.0110,
    7: 0.0097,
    8: 0.0086,
    9: 0.0077,
    10: 0.0070,
    11: 0.0064,
    12: 0.0059,
}
"""Looks → level of each, simulated for Student's t with three launches at the first look.

More launches at the first look, or looks that are closer together, ask for less. A test simulates it again.
"""
CORRECTION = 2.0
"""A difference ends a block's launches at the level over this.

Reports correct for all comparisons of a suite's run (Benjamini and Hochberg 1995), which multiplies a p-value by at
most this where half of them are differences.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a block is measured until its comparisons are decided."""

    looks: tuple[int, ...]
    """Launches at each look, ascending; the last are the most."""
    level: float
    """Nominal level of one look."""

    def critical(self, level: float) -> list[float]:
        """Return two-sided quantiles of Student's t at a level for 2, 3, … launches up to the most, to four digits."""
        # half a second, which no command pays for knowing how many launches may be asked for
        from scipy.special import stdtrit  # noqa: PLC0415

        return [round(float(stdtrit(n - 1, 1 - level / 2)), 4) for n in range(2, self.looks[-1] + 1)]


def design(first: int, most: int, *, budget: bool) -> Design:
    """Return the looks between the first and the most launches, and their level.

    Args:
        first: Launches at the first look, three at least.
        most: Launches at the last look.
        budget: Whether time may end the launches between two looks, which makes one look more.

    Raises:
        ValueError: Fewer than three launches at the first look, or fewer at the last than at the first.
    """
    if first < FIRST_LAUNCHES or most < first:
        raise ValueError(
            f"{first}..{number_of(most, 'launch')}: the first look needs {FIRST_LAUNCHES} at least, the last as many"
        )
    looks = [first]
    while looks[-1] < most:
        following = ceil(GROWTH * looks[-1])
        # A look just before the last would cost a stricter level and decide next to nothing more.
        looks.append(most if following > NEARLY * most else following)
    # The clock may end the launches at any number: that moment is a look as well.
    num_looks = len(looks) + budget
    # Where no level was simulated the error is divided among the looks (Bonferroni), which is stricter than needed.
    return Design(looks=tuple(looks), level=NOMINAL.get(num_looks, OVERALL / num_looks))


def level_after(looks: Sequence[int], launches: int) -> float:
    """Return the level of a stopped comparison's interval: that of the looks which were made.

    Where time or the most launches end a comparison after k looks, a false claim needs one of them to exclude the truth
    at the level of k, which happens in at most 5 %. Where the comparison ended itself, it passed the stricter level of
    all planned looks. That intervals hold does not follow, since when they end depends on them: it is simulated.

    Args:
        looks: Launches at each planned look, ascending.
        launches: After which it ended. Where that is no look, a budget ended it, which counts as one.
    """
    made = sum(look <= launches for look in looks) + (launches not in looks)
    return NOMINAL.get(made, OVERALL / made)
