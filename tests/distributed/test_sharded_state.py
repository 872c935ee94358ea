"""Techniques that share state prove themselves with two-byte parameters, too, and hold and send what papers count."""

from __future__ import annotations

import pytest

from paceline.families.training.sizes import SIZES, VOCABULARY
from paceline.testing import ConformanceResult, conformance

HELD = {"zero-1": (4, 12), "zero-2": (2, 14), "zero-3": (0, 16)}
"""The paper's bytes of a parameter that every rank holds, and that ranks share."""
RANKS = (2, 4)
PAPERS = 0.05
LIKE = 0.01

Results = dict[tuple[str, int], ConformanceResult]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    found = conformance(
        sorted(HELD),
        family="training",
        operations=("data_parallel",),
        ranks=RANKS,
        variants=[
            {"technique": "zero-3", "as": "zero-3-kept", "options": {"reshard": False}},
            *({"technique": name, "as": f"{name}-mixed", "options": {"state": "mixed"}} for name in HELD),
        ],
        folder=tmp_path_factory.mktemp("mixed"),
    )
    return {(r.technique, int(r.params["ranks"])): r for r in found}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("technique", sorted(HELD))
def test_mixed_state_is_the_papers_and_halves_what_is_sent(
    technique: str, ranks: int, results: Results
) -> None:
    mixed, single = results[f"{technique}-mixed", ranks], results[technique, ranks]
    assert mixed.status == single.status == "ok", mixed.reason
    assert mixed.problem is None
    whole, shared = HELD[technique]
    count = SIZES["nano"].parameters(VOCABULARY)
    assert mixed.measured["state_bytes"] == pytest.approx(whole * count + shared * count / ranks, rel=PAPERS)
    assert mixed.measured["wire_bytes"] == pytest.approx(single.measured["wire_bytes"] / 2, rel=0.001)
    assert mixed.measured["messages"] == single.measured["messages"]
    assert mixed.measured["eval_loss"] != single.measured["eval_loss"]
    assert mixed.measured["eval_loss"] == pytest.approx(single.measured["eval_loss"], rel=LIKE)


@pytest.mark.parametrize("ranks", RANKS)
def test_layers_that_stay_after_forward_are_gathered_once(ranks: int, results: Results) -> None:
    kept, freed = results["zero-3-kept", ranks], results["zero-3", ranks]
    assert kept.problem is None
    assert kept.measured["wire_bytes"] == pytest.approx(
        results["zero-1", ranks].measured["wire_bytes"], rel=0.001
    )
    assert kept.measured["state_bytes"] == freed.measured["state_bytes"]
    assert kept.measured["transient_bytes"] > freed.measured["transient_bytes"]
