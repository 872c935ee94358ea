"""Which measurements an export holds, and what of them another tool's format cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.base.errors import UserError, expected_one_of
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which measurements are exported; empty means all."""

    metrics: Sequence[str] = ()
    techniques: Sequence[str] = ()

    def of(self, record: RunRecord) -> Iterator[Measurement]:
        """Yield the measurements that were chosen; a failure is part of every choice of metrics."""
        for m in record.measurements:
            if self.techniques and m.label not in self.techniques and m.technique not in self.techniques:
                continue
            if self.metrics and m.metric.name not in self.metrics and m.status == "ok":
                continue
            yield m

    def check(self, records: Sequence[RunRecord]) -> None:
        """Refuse names that no record has.

        Raises:
            UserError: With the nearest name.
        """
        all_lines = [m for r in records for m in r.measurements]
        for what, wanted, known in (
            ("metric", self.metrics, {m.metric.name for m in all_lines}),
            ("technique", self.techniques, {n for m in all_lines for n in (m.label, m.technique)}),
        ):
            for name in wanted:
                if name not in known:
                    raise UserError(
                        f"the chosen runs have no {what} '{name}'", expected=expected_one_of(name, known)
                    )


def left_out(records: Sequence[RunRecord], choice: Choice) -> list[str]:
    """Describe the chosen cases that have no number, for formats that can only hold numbers."""
    texts = {
        " ".join(f"{m.suite} {m.label} {_point(m)} launch {m.launch}: {m.status}: {m.reason}".split())
        for r in records
        for m in choice.of(r)
        if m.status != "ok"
    }
    return sorted(texts)


def _point(m: Measurement) -> str:
    return " ".join(f"{k}={v}" for k, v in sorted(m.params.items()) if v is not None)
