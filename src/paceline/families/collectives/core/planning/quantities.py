"""Quantities of collectives: what the link between ranks is, and what ranks share; free of torch."""

from __future__ import annotations

from paceline.base.families.quantities import Quantity, Witness


def link_bytes_per_s(seen: Witness) -> float:
    """Return the bandwidth of the point's link, as the launch's calibration measured it."""
    return float(seen.ceilings["calibrated"]["link_bytes_per_s"])


def ranks_per_core(seen: Witness) -> float:
    """Return how many ranks share a core that the run may use."""
    return float(seen.params["ranks"]) / float(seen.host["usable_cores"])


QUANTITIES = (
    Quantity(
        name="link_bytes_per_s",
        unit="B/s",
        doc="Bandwidth of the link between two ranks, as the launch's calibration measured it.",
        compute=link_bytes_per_s,
    ),
    Quantity(
        name="ranks_per_core",
        unit="1",
        doc="Ranks over the cores that the run may use.",
        compute=ranks_per_core,
    ),
)
