"""DeepPrune: of traces that a judge thinks will come to one answer, few go on.

DeepPrune: Parallel Scaling without Inter-trace Redundancy, 2025 (arXiv:2510.08483).

Algorithm: sample all traces up to a glimpse of their beginnings. Go through them in order: each is compared with some
members of each cluster so far; when the highest mean probability of coming to one answer reaches a threshold it joins
that cluster, else it begins its own. Of every cluster the first few go on to their ends, the others are given up; the
answers of those that ended vote.
Cost: the glimpses of all traces, and whole traces of what is kept; the judge reads every glimpse once; the glimpse and
the longest kept trace on the critical path.
Limits: a judge that is unsure keeps everything; one that is wrong drops the right answer, or lets it speak for others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Compare,
    Drop,
    Extend,
    Method,
    Plan,
    Question,
    Reply,
    Request,
    Sample,
    Task,
    require,
)
from paceline.families.reasoning.api.votes import weighted_majority


@dataclass(slots=True)
class Cluster:
    """Traces that are thought to come to one answer."""

    traces: list[int] = field(default_factory=list)


@technique(
    name="deepprune",
    family="reasoning",
    implements=("solve",),
    summary="a judge groups unfinished traces by the answer they will come to; few of each group go on",
    paper="deepprune",
    fidelity={
        "source": {
            "read": "paper",
            "paper": "the abstracts of versions 1 and 2, read for this card",
            "code": "deepprune.github.io is named, and its code could not be read",
        },
        "deviations": (
            (
                "The judge is a small perceptron over what traces have worked out, trained on this project's own "
                "problems; the paper fine-tunes a language model of 4 billion parameters, by the header."
            ),
            "A trace that has ended within its glimpse is not judged and votes for itself.",
            "A cluster's answer counts as many votes as it has traces, unless asked otherwise.",
        ),
        "constants": {
            "glimpse": {"here": 24, "authors": "not read"},
            "threshold": {"here": 0.5, "authors": "not read"},
            "members": {"here": 2, "authors": "not read"},
            "kept": {"here": 1, "authors": "not read"},
            "by_size": {"here": True, "authors": "not read"},
        },
        "checked_by": ("tests/conformance/test_reasoning_conformance.py::test_a_technique_conforms",),
    },
)
def deepprune(
    task: Task,
    *,
    glimpse: int = 24,
    threshold: float = 0.5,
    members: int = 2,
    kept: int = 1,
    by_size: bool = True,
) -> Method:
    """Return the method.

    Args:
        task: The point.
        glimpse: Tokens after which traces are compared.
        threshold: Mean probability at which a trace joins a cluster.
        members: Most members of a cluster that a trace is compared with.
        kept: Traces of a cluster that go on.
        by_size: Whether a cluster's answers count as many votes as it has traces, instead of one for each kept one.

    Raises:
        OptionError: A number is out of range.
    """
    require("glimpse", glimpse, least=1)
    require("members", members, least=1)
    require("kept", kept, least=1)

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i, tokens=glimpse) for i in range(question.samples)]
        # What has ended within the glimpse has cost all that it will: pruning it would save nothing.
        votes: list[tuple[str | None, float]] = [(r.answer, 1.0) for r in replies if r.ended]
        clusters = yield from grouped([r.trace for r in replies if not r.ended], members, threshold)
        yield [Drop(trace=trace) for cluster in clusters for trace in cluster.traces[kept:]]
        going = [(trace, cluster) for cluster in clusters for trace in cluster.traces[:kept]]
        replies = yield [Extend(trace=trace) for trace, _ in going]
        for reply, (_, cluster) in zip(replies, going, strict=True):
            size = len(cluster.traces)
            # The kept ones share their cluster's weight: pruning then leaves the vote as it was where the judge is
            # right.
            votes.append((reply.answer, size / min(kept, size) if by_size else 1.0))
        return weighted_majority(votes)

    return solve


def grouped(
    traces: Sequence[int], members: int, threshold: float
) -> Generator[Sequence[Request], tuple[Reply, ...], list[Cluster]]:
    """Put each trace into the cluster that it fits best, or into one of its own."""
    clusters: list[Cluster] = []
    for trace in traces:
        # Greedy and online: a trace is compared with the first members alone, which bounds comparisons by clusters and
        # not by pairs.
        asked = [(cluster, other) for cluster in clusters for other in cluster.traces[:members]]
        replies = yield [Compare(trace=trace, other=other) for _, other in asked]
        scores: dict[int, list[float]] = {}
        for (cluster, _), reply in zip(asked, replies, strict=True):
            scores.setdefault(id(cluster), []).append(reply.score or 0.0)
        means = {name: sum(values) / len(values) for name, values in scores.items()}
        best = max(clusters, key=lambda cluster: means[id(cluster)], default=None)
        # When in doubt it stands alone: a wrong merge can lose an answer, a needless cluster only costs tokens.
        if best is None or means[id(best)] < threshold:
            clusters.append(best := Cluster())
        best.traces.append(trace)
    return clusters
