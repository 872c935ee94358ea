"""Points at which every technique of all-reduce must conform: those of all operations with a size."""

from paceline.families.collectives.core.planning.conformance import RANKS
from paceline.families.collectives.core.planning.conformance import sized_points as points

__all__ = ["RANKS", "points"]
