"""Speculative inference: a small model drafts some tokens, and one call of the target checks them all.

Leviathan, Kalman and Matias, 2023, "Fast Inference from Transformers via Speculative Decoding" (arXiv:2211.17192),
its algorithm for greedy answers; Chen et al., 2023, "Accelerating Large Language Model Decoding with Speculative
Sampling" (arXiv:2302.01318).

Algorithm: draft k tokens one after another; let the target say what it would say behind the prefix and behind each
draft; hand out its own tokens as far as the drafts agreed, and the one behind; do so again from there.
Cost: with drafts that agree with probability a, (1 - a^(k+1)) / (1 - a) tokens in k·t_draft + t_target; two devices,
of which one always waits for the other.
Differences: the answer is greedy, so that a draft is accepted where it is the target's own token; the papers' rule for
sampled answers accepts it with a probability that keeps the target's distribution.
Limits: where the drafter is slow or seldom agrees it is slower than the target alone.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="speculative",
    family="serving",
    implements=("decode",),
    summary="drafts, then checks all drafts at once, one after the other",
)
class Speculative:
    """Drafts and checks in turn.

    Args:
        lookahead: Drafts of a check; the point's where it is 0.
    """

    def __init__(self, *, lookahead: int = 0) -> None:
        self.lookahead = lookahead

    def decode(self, simulator: Simulator) -> None:
        """Hand out the target's answer."""
        answer: list[int] = []
        while (left := simulator.given.num_tokens - len(answer)) > 0:
            drafts: list[int] = []
            # At most left − 1 drafts: the check tells one token more than it has drafts.
            for _ in range(min(self.lookahead or simulator.given.lookahead, left - 1)):
                simulator.draft([*answer, *drafts])
                drafts += simulator.wait().told or ()
            simulator.check(answer, drafts)
            told = simulator.wait().told
            assert told is not None
            # Behind the first rejected draft the target's tokens continue a wrong prefix. Its own token at that place
            # is right, so a check always brings one token at least.
            agreed = next((n for n, token in enumerate(drafts) if token != told[n]), len(drafts))
            answer += told[: agreed + 1]
            simulator.deliver(told[: agreed + 1])
