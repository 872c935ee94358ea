"""What ``paceline new technique --op`` writes conforms as it stands, for every operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.workflows.conformance import points_of

EVERY = [
    f"{name}/{operation}"
    for name in family_names()
    if not load_family(name).internal
    for operation in load_family(name).operations
    if operation != "custom"
]
ASKS_A_SERVER = ("serving/endpoint",)
"""Checked where a server is: tests/serving."""

ON_A_SQUARE = "collectives/matrix_product"
"""Of ranks: two are none."""


def has_points(place: str) -> bool:
    """Tell whether ``paceline check`` tries an operation; suites judge every run of the others whole."""
    return bool(points_of(*place.split("/"), brief=True))


@pytest.mark.parametrize("place", [p for p in EVERY if p not in ASKS_A_SERVER and has_points(p)])
def test_what_is_begun_conforms(place: str, tmp_path: Path) -> None:
    path = tmp_path / "my_own.py"
    made = CliRunner().invoke(
        application, ["new", "technique", "my-lab/my-own", "--op", place, "--output", str(path)]
    )
    assert made.exit_code == 0, made.exception
    ranks = ["--ranks", "2"] if place.startswith(("collectives", "training")) and place != ON_A_SQUARE else []
    done = CliRunner().invoke(application, ["check", str(path), "--brief", *ranks])
    assert done.exit_code == 0, done.output
    assert "my-lab/my-own: conforms" in done.output
