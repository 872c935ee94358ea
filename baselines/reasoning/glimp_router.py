"""GlimpRouter: a small model writes one token of every step, and hands over the steps that it is unsure of.

GlimpRouter: Efficient Collaborative Inference by Glimpsing One Token of Thoughts, 2026.

Algorithm: for every step of reasoning the model decodes one token, the glimpse. If the entropy of the distribution
that it came from stays below a threshold, the model goes on to the step's end; else the glimpse is thrown away and the
partner, a larger model, writes the step. Steps follow each other until the answer is there.
Cost: one glimpse of every step, and the steps; a handover lets the receiver read what the other one wrote. All of it
is one chain; tokens of the partner cost more by its parameters.
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
    fidelity={
        "source": {
            "read": "code",
            "paper": "the method by the header, not read for this card",
            "code": "github.com/Zengwh02/GlimpRouter: src/glimp_router.py",
        },
        "deviations": (
            (
                "The entropy is of the whole vocabulary of 39 symbols; the authors take the 20 likeliest tokens "
                "and make their probabilities add up to 1."
            ),
            "The answer is a step like any other; the authors let the large model write it.",
            (
                "A glimpse that is kept is the step's first token; the authors' is the likeliest token, and their "
                "small model writes the step from its beginning."
            ),
            (
                "A solution ends at its answer; the authors also stop at a step that repeats the one before, and "
                "at a budget of 8192 tokens."
            ),
            "The threshold is for a vocabulary of 39.",
        ),
        "constants": {
            "threshold": {"here": 0.5, "authors": "1.0 nat (score_threshold), glimp_router.py"},
            "NUM_STEPS": {"here": 500, "authors": "a budget of tokens, 8192, glimp_router.py"},
        },
        "checked_by": (
            (
                "tests/unit/test_reasoning_executor.py::test_a_partner_reads_what_it_has_not_read_and_counts_by_its_weight"
            ),
            "tests/conformance/test_reasoning_conformance.py::test_a_technique_conforms",
        ),
    },
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
