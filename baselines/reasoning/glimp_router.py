"""GlimpRouter: a small model writes one token of every step, and hands over the steps that it is unsure of.

GlimpRouter: Efficient Collaborative Inference by Glimpsing One Token of Thoughts, 2026.

Algorithm: for every step of reasoning the model decodes one token, the glimpse. If the entropy of the distribution
that it came from stays below a threshold, the model goes on to the step's end; else the glimpse is thrown away and the
partner, a larger model, writes the step. Steps follow each other until the answer is there.
Cost: one glimpse of every step, and the steps; a handover lets the receiver read what the other one wrote. All of it
is one chain; tokens of the partner cost more by its parameters.
Differences: the entropy is of the whole vocabulary of 39 symbols, where the paper takes the 20 likeliest tokens of a
large one; the answer is a step like any other, where the paper lets the large model write it.
Limits: a model that is sure of its mistakes keeps them; one that hesitates between good orders hands over for nothing.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Branch,
    Drop,
    Extend,
    Method,
    Plan,
    Question,
    Sample,
    Task,
    require,
)

NUM_STEPS = 500
"""More than a context has; a chain that does not end has no answer."""


@technique(
    name="glimp-router",
    family="reasoning",
    implements=("solve",),
    summary="steps whose first token the model is unsure of are written by its partner",
    paper="glimprouter",
)
def glimp_router(task: Task, *, threshold: float = 0.5) -> Method:
    """Return the method.

    Args:
        task: The point.
        threshold: Entropy in nats of a step's first token, from which on the partner writes the step.

    Raises:
        OptionError: It is negative.
    """
    require("threshold", threshold, least=0)

    def solve(question: Question) -> Plan:
        (whole,) = yield [Sample(index=0, tokens=0)]
        own, other = whole.trace, None  # the latest trace of each model: what it has read is not read again
        for _ in range(NUM_STEPS):
            # On a copy, so that a glimpse that is thrown away leaves no token in the chain.
            (glimpse,) = yield [Branch(trace=whole.trace, tokens=1)]
            if not glimpse.tokens:
                return None
            if glimpse.entropies[0] <= threshold:
                # The glimpse holds all that its parent did, and takes its place as what the model has read.
                yield [Drop(trace=own)]
                own, whole = glimpse.trace, glimpse
                if not glimpse.ended:
                    (whole,) = yield [Extend(trace=glimpse.trace, step=True)]
            else:
                yield [Drop(trace=glimpse.trace)]
                # From before the glimpse: the partner writes the whole step, its first token too.
                (whole,) = yield [Branch(trace=whole.trace, partner=True)]
                if other is not None:
                    yield [Drop(trace=other)]
                other = whole.trace
            if whole.ended:
                return whole.answer
        return None

    return solve
