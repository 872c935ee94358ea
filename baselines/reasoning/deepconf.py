"""DeepConf: traces that become unsure on the way are given up, the others vote by how sure they were.

Fu, Wang, Tian and Zhao, 2025, "Deep Think with Confidence" (arXiv:2508.15260): lowest group confidence, the online
algorithm with a warm-up that sets the threshold, and votes weighted by confidence.

Algorithm: w traces are decoded to their ends. A trace's confidence is that of its least sure window of tokens. The
threshold is the warm-up's quantile at 1 − keep: with keep 0.9 a trace may be almost as unsure as the worst of them,
with keep 0.1 it must be as sure as the best. The other traces go on in chunks; one whose confidence falls below the
threshold is given up and does not vote. Traces that end vote with their confidence as weight. As soon as one answer has
a share of at least ``consensus`` of the weight, the question ends.
Cost: w whole traces, then of each other one what it decoded before it was given up; the critical path is the longest of
the warm-up and then the longest of the rest.
Differences: a token's confidence is exp(−entropy) of its distribution; the paper takes the mean log-probability of the
likeliest tokens, which needs more of the model than its choice and entropy. Confidence and consensus are looked at
after every chunk, not after every token and trace. Warm-up, window and chunk are shorter, as our traces are: 4 of 16
traces and 8 tokens instead of 16 of 512 and 2048.
Limits: a model that is sure of its mistakes keeps the wrong traces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Drop,
    Extend,
    Method,
    Plan,
    Question,
    Reply,
    Sample,
    Task,
    require,
)


@dataclass(slots=True)
class _Thought:
    """One trace on its way."""

    trace: int
    entropies: list[float] = field(default_factory=list)
    vote: str | None = None
    ended: bool = False

    def hear(self, reply: Reply) -> None:
        """Take what the trace has come to."""
        self.entropies += reply.entropies
        self.ended, self.vote = reply.ended, reply.answer

    def confidence(self, window: int) -> float:
        """Return exp(−mean entropy) of the least sure window of tokens, of all tokens where there are fewer."""
        # The lowest group confidence: one bad stretch gives a trace away, where a mean over the trace would hide it.
        sums = [sum(self.entropies[i : i + window]) for i in range(max(len(self.entropies) - window, 0) + 1)]
        return math.exp(-max(sums) / min(window, len(self.entropies)))


@technique(
    name="deepconf",
    family="reasoning",
    implements=("solve",),
    summary="unsure traces are given up, the others vote by how sure they were",
)
def deepconf(
    task: Task,
    *,
    warmup: int = 4,
    keep: float = 0.9,
    window: int = 8,
    chunk: int = 8,
    consensus: float = 0.95,
) -> Method:
    """Return the method.

    Args:
        task: The point.
        warmup: Traces that are decoded to their ends first.
        keep: Share of the warm-up's traces that would not be given up.
        window: Tokens over which confidence is averaged.
        chunk: Tokens between looks.
        consensus: Share of the votes' weight at which a question ends.

    Raises:
        OptionError: A number is out of range.
    """
    for name, value in (("warmup", warmup), ("window", window), ("chunk", chunk)):
        require(name, value, least=1)
    require("keep", keep, least=0, most=1)

    def solve(question: Question) -> Plan:
        first = min(warmup, question.samples)
        replies = yield [Sample(index=i) for i in range(first)]
        thoughts = [_heard(reply) for reply in replies]
        answer, share = _weighed(thoughts, window)
        if share >= consensus or first == question.samples:
            return answer
        # Per question: what is unsure on a hard one would be sure on none.
        threshold = _quantile([t.confidence(window) for t in thoughts], 1 - keep)
        replies = yield [Sample(index=i, tokens=chunk) for i in range(first, question.samples)]
        going = [_heard(reply) for reply in replies]
        while going:
            # Ended ones too: a trace that has fallen below the threshold on its last chunk must not vote.
            unsure = [t for t in going if t.confidence(window) < threshold]
            sure = [t for t in going if t not in unsure]
            thoughts += [t for t in sure if t.ended]
            going = [t for t in sure if not t.ended]
            yield [Drop(trace=t.trace) for t in unsure]
            # Traces still under way do not vote, and on consensus what they have decoded is paid for all the same.
            answer, share = _weighed(thoughts, window)
            if share >= consensus:
                break
            replies = yield [Extend(trace=t.trace, tokens=chunk) for t in going]
            for thought, reply in zip(going, replies, strict=True):
                thought.hear(reply)
        return answer

    return solve


def _heard(reply: Reply) -> _Thought:
    thought = _Thought(reply.trace)
    thought.hear(reply)
    return thought


def _weighed(thoughts: Sequence[_Thought], window: int) -> tuple[str | None, float]:
    """Return the answer of the greatest weight, and its share of all weight."""
    weights: dict[str, float] = {}
    for thought in thoughts:
        if thought.vote is not None:
            # Unreadable answers weigh nothing here, so they cannot keep a consensus from being reached.
            weights[thought.vote] = weights.get(thought.vote, 0.0) + thought.confidence(window)
    if not weights:
        return None, 0.0
    best = max(weights, key=weights.__getitem__)
    return best, weights[best] / sum(weights.values())


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which about this share of the values lies, by linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
