"""Which weights changed hands between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.training.api.replica import Share


class Owners:
    """Looks at what a rank owns of the weights after every step."""

    def __init__(self) -> None:
        self._before: set[tuple[int, int, int]] | None = None
        self.moved_bytes = 0.0
        """Bytes of the runs of weights that came to this rank, over all steps."""

    def look(self, shares: Sequence[Share] | None) -> None:
        """Compare with what the rank owned at the last look."""
        if shares is None:
            return
        runs = {(number, start, values.numel()) for number, start, values in shares}
        if self._before is not None:
            self.moved_bytes += sum(4.0 * count for _, _, count in runs - self._before)
        self._before = runs
