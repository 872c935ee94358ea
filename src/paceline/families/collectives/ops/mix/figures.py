"""How much of the replicas' spread an exchange leaves."""

from __future__ import annotations

from typing import Any

import torch

from paceline.families.collectives.core.candidate import Candidate
from paceline.families.collectives.ops.mix.gate import check_mixing, gram, mixing_matrix
from paceline.worker.ranks.session import CaseError, Session

MIX_CALLS = 16


def spread_ratios(session: Session, candidate: Candidate) -> dict[str, Any]:
    """Mix several times; return how much of the replicas' spread each exchange leaves.

    With mixing weights W and centred inputs x, the spread after is Σᵢ‖Σⱼ Wᵢⱼ xⱼ‖² over Σⱼ‖xⱼ‖² before.

    Raises:
        CaseError: An exchange was not a doubly stochastic mixture.
    """
    ratios: list[float] = []
    for _ in range(MIX_CALLS):
        workspace = candidate.run_untimed()
        rows, residual = mixing_matrix(session, workspace)
        check = check_mixing(rows, residual, candidate.problem.dtype)
        if not check.passed:
            raise CaseError("incorrect", f"mixing: {check.reason}")
        expected = workspace.variants[workspace.current].expected[0]
        assert expected is not None
        products = gram([c.double().view(-1) for c in expected.contributions])
        centred = products - products.mean(dim=0) - products.mean(dim=1, keepdim=True) + products.mean()
        weights = torch.tensor(rows, dtype=torch.float64)
        ratios.append(float((weights @ centred @ weights.T).trace() / centred.trace()))
    return {"consensus_distance_ratio": {"samples": ratios}}
