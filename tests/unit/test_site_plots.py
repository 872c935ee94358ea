"""What figures carry for readers who zoom, and the files that are read when they do."""

from __future__ import annotations

import hashlib
import json

from paceline.report.charts.large import Swept
from paceline.report.charts.zoom import nightly_plot, swept_plot
from paceline.report.html import ON_DEMAND, SCRIPT, STYLE, on_demand
from paceline.spec import content

UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
"""SHA-256 of dist/uPlot.iife.min.js in npm's uplot-1.6.32.tgz."""
LIMIT = 120 * 1024


def test_series_of_different_places_stand_on_one_axis_with_gaps() -> None:
    ring = Swept(name="ring", colour="s0", points=((8.0, 1.0, 0.9, 1.1), (64.0, 3.0, None, None)))
    native = Swept(
        name="native", colour="base", points=((8.0, 2.0, None, None), (16.0, 2.123456789, None, None))
    )
    text = swept_plot([ring, native], x=("size_bytes", "B", 1.0), y=("latency", "s"), baseline="native")
    plot = json.loads(text)
    assert plot["x"] == [8, 16, 64]
    assert plot["base"] == "native"
    first, second = plot["series"]
    assert (first["y"], first["low"], first["high"]) == ([1, None, 3], [0.9, None, None], [1.1, None, None])
    assert second == {"name": "native", "colour": "base", "y": [2, 2.1235, None]}


def test_what_is_not_finite_is_a_gap_and_an_absent_baseline_is_none() -> None:
    odd = Swept(
        name="odd", colour="s0", points=((1.0, 2.0, float("nan"), float("inf")), (2.0, 1.0, 0.5, 2.0))
    )
    plot = json.loads(swept_plot([odd], x=("ranks", "", 1.0), y=("latency", "s"), baseline="native"))
    assert plot["base"] is None
    assert plot["series"][0]["low"] == [None, 0.5]


def test_nights_keep_their_days() -> None:
    nights = [("2026-11-01", (1.0, 0.9, 1.1)), ("2026-11-02", (1.5, None, None))]
    plot = json.loads(nightly_plot("latency", "s", "s0", nights))
    assert plot["names"] == ["2026-11-01", "2026-11-02"]
    assert plot["series"][0]["high"] == [1.1, None]


def test_all_scripts_and_styles_together_stay_small() -> None:
    folder = content.report_templates()
    own = sum((folder / name).stat().st_size for name in (SCRIPT, STYLE))
    assert own + sum(len(text.encode()) for text in on_demand().values()) <= LIMIT


def test_the_library_that_is_brought_along_is_the_published_one_with_its_licence() -> None:
    folder = content.report_templates()
    brought = folder / ON_DEMAND["uplot.js"]
    assert hashlib.sha256(brought.read_bytes()).hexdigest() == UPLOT
    assert "MIT" in (brought.parent / "LICENSE").read_text(encoding="utf-8")
