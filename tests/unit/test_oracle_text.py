"""What a record says a case was held to is what was checked in that case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.judging import held_to

CURVE = [4.0, 3.0]


def said(
    *, learning: bool = True, compared: int = 0, proof: str = "brief", curve: list[float] = CURVE
) -> str:
    setting: Any = SimpleNamespace(require_convergence=learning)
    return held_to({"proof": proof}, cast(Setting, setting), curve, compared)


def test_an_exact_technique_is_held_to_steps_and_to_a_loss_that_falls() -> None:
    assert said(compared=6) == (
        "held-out loss falls; 6 steps, passes or states were held against the harness's own"
    )


def test_of_a_lossy_technique_with_brief_proofs_the_loss_alone_is_known() -> None:
    assert said() == "held-out loss falls; no step was held against anything"


def test_a_loss_that_need_not_fall_was_measured() -> None:
    assert said(learning=False).startswith("held-out loss was measured, not required to fall; ")


def test_what_reads_has_no_loss_of_its_own_to_lower() -> None:
    assert said(compared=3, curve=[]).startswith("every loss is that of one process; 3 steps")


@pytest.mark.parametrize(("proof", "told"), [("all", True), ("brief", False)])
def test_repetition_and_checkpoints_are_told_of_where_they_were_proved(proof: str, told: bool) -> None:
    assert said(proof=proof).endswith("runs repeat themselves and go on from what was saved") == told
