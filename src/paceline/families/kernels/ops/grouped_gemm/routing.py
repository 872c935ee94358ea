"""How many tokens each expert gets, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import integer

SKEWS = ("even", "skewed")


def expert_tokens(params: Params) -> list[int]:
    """Return the number of tokens routed to each expert: even, or falling as 1/rank (a Zipf law), some experts idle."""
    tokens, experts = integer(params, "tokens"), integer(params, "experts")
    if str(params["skew"]) == "even":
        base, extra = divmod(tokens, experts)
        return [base + (1 if e < extra else 0) for e in range(experts)]
    weights = [1.0 / (e + 1) for e in range(experts)]
    shares = [int(tokens * w / sum(weights)) for w in weights]
    shares[0] += tokens - sum(shares)
    return shares
