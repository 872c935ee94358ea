"""REBASE: a tree of steps, in which what is promising is continued more often.

Wu, Sun, Li, Welleck and Yang, 2024, "Inference Scaling Laws: An Empirical Analysis of Compute-Optimal Inference for
Problem-Solving with Language Models" (arXiv:2408.00724), section 3.2: reward balanced search.

Algorithm: begin N traces of one step. After each step every leaf has a reward R; the budget, N less the traces that
have ended, is shared among the leaves that go on in proportion to exp(R / T), rounded so that its sum is kept; each
leaf is continued that many times, and one whose share is 0 is given up. When all have ended, their answers vote with
their last rewards.
Cost: the steps of at most N traces at a time; one review of every step; on the critical path the longest step of each
depth; the cache of the tree's live paths, beginnings that they share once.
Differences: the reward is the geometric mean of the step's probabilities under the point's partner, another language
model, where the paper trains a reward model; a step is what is written up to the next result.
Limits: the reviewer's mistakes are the search's; without a partner it cannot run.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Branch,
    Drop,
    Method,
    Plan,
    Question,
    Reply,
    Request,
    Review,
    Sample,
    Task,
    require,
)
from paceline.families.reasoning.api.votes import weighted_majority

Rounds = Generator[Sequence[Request], tuple[Reply, ...], "list[Leaf]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One end of the tree."""

    trace: int
    reward: float
    ended: bool
    answer: str | None


def shares(rewards: Sequence[float], budget: int, temperature: float) -> list[int]:
    """Share a budget in proportion to exp(reward / temperature); the largest remainders are rounded up."""
    # As in a stable softmax: at the least temperature exp(1 / T) would overflow.
    top = max(rewards)
    weights = [math.exp((reward - top) / temperature) for reward in rewards]
    exact = [budget * weight / math.fsum(weights) for weight in weights]
    # Largest remainders, so that the shares sum to the budget exactly; rounding each could begin more traces than
    # there are.
    found = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (found[i] - exact[i], i))
    for i in by_remainder[: budget - sum(found)]:
        found[i] += 1
    return found


def reviewed(replies: Sequence[Reply]) -> Rounds:
    """Let the partner review what was just written."""
    # A copy without room has written no step that could be reviewed; it leaves the tree.
    there = [reply for reply in replies if reply.tokens]
    scores = yield [Review(trace=reply.trace) for reply in there]
    return [
        Leaf(trace=reply.trace, reward=review.score or 0.0, ended=reply.ended, answer=reply.answer)
        for reply, review in zip(there, scores, strict=True)
    ]


@technique(
    name="rebase",
    family="reasoning",
    implements=("solve",),
    summary="a tree of steps, the budget shared by a reviewer's rewards",
)
def rebase(task: Task, *, width: int | None = None, temperature: float = 0.2) -> Method:
    """Return the method.

    Args:
        task: The point.
        width: N; None takes all traces that a question has.
        temperature: T, of the shares.

    Raises:
        OptionError: A number is out of range.
    """
    count = task.samples if width is None else width
    require("width", count, least=1, most=task.samples)
    require("temperature", temperature, least=1e-6)

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i, step=True) for i in range(count)]
        leaves = yield from reviewed(replies)
        done = [leaf for leaf in leaves if leaf.ended]
        going = [leaf for leaf in leaves if not leaf.ended]
        while going and len(done) < count:
            numbers = shares([leaf.reward for leaf in going], count - len(done), temperature)
            parents = [leaf for leaf, n in zip(going, numbers, strict=True) for _ in range(n)]
            branches = [Branch(trace=leaf.trace) for leaf in parents]
            # In one round, served in order: children copy their parents' cache before that is given up.
            replies = yield [*branches, *(Drop(trace=leaf.trace) for leaf in going)]
            replies = replies[: len(branches)]
            leaves = yield from reviewed(replies)
            done += [leaf for leaf in leaves if leaf.ended]
            going = [leaf for leaf in leaves if not leaf.ended]
        # By the last step's reward: it is the only one that has read the answer.
        return weighted_majority((leaf.answer, leaf.reward) for leaf in done)

    return solve
