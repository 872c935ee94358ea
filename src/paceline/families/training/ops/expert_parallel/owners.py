"""Which weights changed hands between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.families.training.api.replica import Share
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial


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


class Moves(Callback):
    """Measures how many weights come to another rank.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session, self.sandbox, self.steps = trial.session, trial.sandbox, trial.setting.steps
        self.owners = Owners()

    def look(self, step: int | None) -> None:
        """Look at what this rank owns now."""
        with self.sandbox.watch():
            shares = self.sandbox.replica.shares()
        self.owners.look(shares)

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return the bytes that came to the busiest rank, mean over steps."""
        rows = self.session.control.gather([[self.owners.moved_bytes]])
        return {"moved_bytes": {"samples": [max(rank[0][0] for rank in rows) / self.steps]}}
