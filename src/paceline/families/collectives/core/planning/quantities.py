"""Quantities of collectives: what the link between ranks is; free of torch."""

from __future__ import annotations

from paceline.base.families.quantities import Quantity, Witness


def link_bytes_per_s(seen: Witness) -> float:
    """Return the bandwidth of the point's link, as the launch's calibration measured it."""
    return float(seen.ceilings["calibrated"]["link_bytes_per_s"])


QUANTITIES = (
    Quantity(
        name="link_bytes_per_s",
        unit="B/s",
        doc="Bandwidth of the link between two ranks, as the launch's calibration measured it.",
        compute=link_bytes_per_s,
    ),
)
