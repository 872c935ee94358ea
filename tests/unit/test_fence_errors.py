"""What ranks would refuse of a technique's source, ``validate`` says before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.spec.techniques.fence import fence_errors

SOURCE = """
from paceline import technique
{line}


@technique(name="my-lab/mine", family="serving", implements=("serve",), summary="Mine.")
class Mine:
    pass
"""
REFUSED = {
    "from paceline.families.serving.scheduling import Room": "import from paceline.families.serving.api.scheduling",
    "from paceline.families.serving.core.schedulin import Room": "import from paceline.families.serving.api.scheduling",
    "from paceline.families.serving.core.engine.core import Engine": None,
    "import subprocess": None,
    "import torch.distributed as dist": None,
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_ranks_refuse_is_a_mistake_with_its_place_and_what_was_meant(line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format(line=line).lstrip())
    (error,) = fence_errors(path, "serving")
    assert error.where == f"{path}:2"
    assert error.fix == REFUSED[line]
    result = CliRunner().invoke(application, ["validate", str(path)])
    assert result.exit_code == 2
    assert "which ranks refuse" in result.output


def test_what_ranks_accept_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format(line="from paceline.families.serving.api.scheduling import Room").lstrip())
    assert fence_errors(path, "serving") == []
