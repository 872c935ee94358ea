"""Mixed precision as state: narrow parameters with masters that lose nothing, and when a technique is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline.baselines.training import zero_1, zero_2, zero_3
from torch import nn
from training_task import make_comm, make_task, on_ranks

from paceline.families.training.api.masters import MIXED, SINGLE, Masters, narrow_parameters, widths
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.memory import held
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.core.proofs.gate import is_exact
from paceline.worker.ranks.session import Case, UnsupportedError

RANKS = 3
EXPECTED = {zero_1.Zero1: (4, 12), zero_2.Zero2: (2, 14), zero_3.Zero3: (0, 16)}
"""The paper's bytes of a parameter that every rank holds, and that ranks share."""


def test_masters_take_up_updates_that_narrow_weights_would_lose() -> None:
    replica = Replica(make_task(optimizer_name="sgd"), make_comm())
    share = nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
    masters = Masters(replica, [share])
    optimizer = torch.optim.SGD(masters.parameters, lr=1e-4)
    for _ in range(100):
        share.grad = torch.ones_like(share)
        masters.step(optimizer)
    assert torch.equal(share.detach(), torch.full((5,), 0.99, dtype=torch.bfloat16))
    lost = torch.ones(5, dtype=torch.bfloat16)
    for _ in range(100):
        lost -= 1e-4
    assert torch.equal(lost, torch.ones_like(lost))
    assert [m.grad for m in masters.parameters] == [None]
    assert list(replica.kept) == ["master 0"]


def test_wide_shares_are_their_own_masters() -> None:
    replica = Replica(make_task(), make_comm())
    share = nn.Parameter(torch.ones(5))
    masters = Masters(replica, [share])
    assert masters.parameters == [share]
    assert not replica.kept


def test_other_states_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="single or mixed, and not double"):
        narrow_parameters(make_task(), "double")
    assert (widths(SINGLE), widths(MIXED)) == ((4, 0), (2, 4))


@pytest.mark.parametrize("kind", EXPECTED)
def test_mixed_state_is_the_papers(kind: Any) -> None:
    def step(replica: Replica) -> dict[str, float]:
        replica.forward_backward(torch.zeros(2, 17, dtype=torch.long))
        replica.exchange_gradients(0)
        replica.update(0)
        replica.exchange_parameters(0)
        replica.forward_backward(torch.zeros(2, 17, dtype=torch.long))
        replica.exchange_gradients(1)
        return held.state_bytes(replica)

    found = on_ranks(lambda task, comm: kind(task, comm, state=MIXED), RANKS, step)
    count = make_task().num_parameters
    whole, shared = EXPECTED[kind]
    for _, counted in found:
        assert counted["state"] == pytest.approx(whole * count + shared * count / RANKS, rel=0.01)
        assert counted["optimizer"] == pytest.approx(12 * count / RANKS, rel=0.01)
        assert counted["extra"] == 0


@pytest.mark.parametrize(
    ("options", "exact"), [({}, True), ({"state": "single"}, True), ({"state": "mixed"}, False)]
)
def test_options_that_round_end_exactness(options: dict[str, str], exact: bool) -> None:
    case = Case(
        case_id="1", label="it", technique="it", module="it", sha256="", role="technique", options=options
    )
    promised = Training(exact=True, inexact_with={"state": "mixed"})
    assert is_exact(promised, {"state": "single"}, case) is exact
    assert not is_exact(Training(exact=False), {"state": "single"}, case)


def test_an_option_at_its_default_ends_no_exactness() -> None:
    """Or a technique that rounds could say that it is exact and never be held to it."""
    case = Case(case_id="1", label="it", technique="it", module="it", sha256="", role="technique", options={})
    assert is_exact(Training(exact=True, inexact_with={"state": "mixed"}), {"state": "mixed"}, case)
