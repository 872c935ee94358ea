"""What a plan says before a run: no line is wider than the terminal."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from test_claim_power import HALF_WIDTH, doctored, judged

from paceline.cli import application
from paceline.workflows.expecting import untold_of, untold_text


def planned(*arguments: str) -> str:
    ended = CliRunner().invoke(application, ["plan", *arguments])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.mark.parametrize("width", [60, 100])
def test_a_plan_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = planned("tour/all-reduce", "kernels/add-rmsnorm")
    assert max(map(len, said.splitlines())) <= width
    assert "fused-add-rmsnorm, torch-compile" in " ".join(said.split())
    assert max(map(len, planned("kernels/add-rmsnorm", "--wide").splitlines())) > 100


def test_a_plan_says_for_which_claims_its_launches_are_too_few() -> None:
    """By the spread of the launches that decided: twelve would tell the first, no number of them the second."""
    one = judged(doctored(HALF_WIDTH), difference_at_most=0.005)
    never = judged(doctored(HALF_WIDTH), difference_at_most=0.00001)
    told = judged(doctored(0.0001), difference_at_most=0.005)
    few = list(untold_of([one, never, told], {one.suite: 5}))
    assert [(u.claim, u.launches, u.launches_needed) for u in few] == [
        (one.claim_id, 5, 12),
        (one.claim_id, 5, None),
    ]
    assert untold_text(few) == (
        "by the spread of earlier launches these are too few for 2 claims: "
        f"{one.claim_id} (12 would), {one.claim_id} (more than 1000 would)"
    )
    assert list(untold_of([one], {one.suite: 12})) == [] == list(untold_of([one], {"another/suite": 1}))
    assert untold_text([]) == ""
    assert "and 1 more" in untold_text([*few, *few, few[0]])
