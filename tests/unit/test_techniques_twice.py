"""Two files may not declare one technique: nobody could tell which of them was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.spec import content


def test_a_name_that_another_file_has_is_refused_with_both_places(tmp_path: Path) -> None:
    taken = content.techniques("collectives")["ring"]
    copy = tmp_path / "other_ring.py"
    copy.write_text(Path(taken.path).read_text())
    with pytest.raises(UserError) as refused:
        content.techniques("collectives", extra=[copy])
    said = str(refused.value)
    assert "the technique 'ring' is declared twice" in said
    assert re.search(r"other_ring\.py:\d+", said)
    assert re.search(r"ring\.py:\d+ already has it", said)
