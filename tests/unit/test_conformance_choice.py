"""A conformance run finds its techniques and their family, and says what it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.spec import content
from paceline.workflows.conformance import conformance

FAMILIES = [f for f in family_names() if not load_family(f).internal]
TECHNIQUE = """\
from paceline import technique


@technique(name="my-lab/mine", family="training", implements=("{operation}",), summary="mine")
class Mine:
    pass
"""


def write(folder: Path, operation: str) -> Path:
    path = folder / "mine.py"
    path.write_text(TECHNIQUE.format(operation=operation), encoding="utf-8")
    return path


def test_an_unknown_technique_is_an_error_with_the_nearest_of_all_families(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'ddp-naive'"):
        conformance(["ddp-naiv"], folder=tmp_path)
    with pytest.raises(UserError, match=r"or a file, such as gather-add.py"):
        conformance(["my-lab/gather-add"], folder=tmp_path)


def test_techniques_of_two_families_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="ring of collectives, ddp of training: a conformance run is of one family"
    ):
        conformance(["ring", "ddp"], folder=tmp_path)
    with pytest.raises(UserError, match="unknown technique 'ddp'"):
        conformance(["ddp"], family="collectives", folder=tmp_path)
    with pytest.raises(UserError, match="a conformance run is of one family"):
        conformance([write(tmp_path, "data_parallel")], family="collectives", folder=tmp_path)


def test_a_misspelt_operation_of_a_file_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'data_parallel'"):
        conformance([write(tmp_path, "dataparallel")], folder=tmp_path)


def test_an_operation_without_points_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="churn of training has no conformance points"):
        conformance([write(tmp_path, "churn")], folder=tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_name_is_of_two_families_or_a_family_has_to_be_told(family: str, tmp_path: Path) -> None:
    others = {n for f in FAMILIES if f != family for n in content.techniques(f)}
    for name in set(content.techniques(family)) & others:
        with pytest.raises(UserError, match=rf"'{name}' is a technique of [\s\S]*fix: family='"):
            conformance([name], folder=tmp_path)
