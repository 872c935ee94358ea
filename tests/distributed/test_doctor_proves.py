"""``paceline doctor --prove`` on this machine's processor: its four proofs are real runs."""

from __future__ import annotations

import pytest

from paceline.workflows.proving import prove


@pytest.mark.timeout(300)
def test_the_processors_part_works_here() -> None:
    report = prove(say=lambda proof: None)
    by = {p.name: p for p in report.proofs if p.name.endswith(" on cpu")}
    assert len(by) == 4
    assert {p.status for p in by.values()} == {"ok"}, by
    assert report.seconds > 0
