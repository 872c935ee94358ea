"""NanoFlow: operators of one kind on some rows while operators of another kind work on others.

Zhu et al., 2024, "NanoFlow: Towards Optimal Large Language Model Serving Throughput" (arXiv:2408.12757), its automatic
search: structure first, without interference (stage I), then shares of the device with it (stage II).

Algorithm: every operator's rows are cut into some nano-batches, fewer behind attention than before it. A nano-batch
begins when the rows that it needs are there, nothing of its kind is computed, and its operator's share of the device is
free; compute takes what is left, up to its operator's share. Earlier layers, operators and rows go first. Cuts and
shares are searched: for each pair of cuts the shares under which a layer between others takes least, by trying other
shares of one operator after another until none helps.
Cost: with shares r of memory- or network-bound work that reaches P(r) of its rate, compute loses r/P(r) of that work's
time instead of all of it; each further nano-batch reads its weights again.
Limits: where a share reaches no more than itself (exchange of 0.4) nothing can be gained, and whole batches one after
another are kept.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

from paceline.baselines.serving.sequential_operators import SequentialOperators

from paceline import technique
from paceline.families.serving.api.overlapping import COMPUTE, Given, NanoBatch, Operator

SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
CUTS = ((1, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 4))
"""Nano-batches of the operators up to attention, and of those behind it."""
BEGINNINGS = ((1.0, 0.1), (1.0, 0.2), (1.0, 0.4), (0.8, 0.2))
"""Shares of compute and of the others from which a descent starts."""
# Compute takes what the others leave, and keeps it to its end: below this it waits for more instead of crawling.
LEAST_SHARE = 0.05
TRIED_LAYERS = (2, 2)
"""Layers that are tried, and how many more: what those add is what a layer takes inside a model."""
CLOSE = 1e-9


Key = tuple[int, int, int]
"""A nano-batch: layer, place of its operator, number."""


class _Lines:
    """What waits for what in some layers, and how long each takes alone, for one pair of cuts."""

    def __init__(self, given: Given, cuts: tuple[int, int], layers: int) -> None:
        self.given = given
        self.parts = _parts(given, cuts)
        self.kinds = [o.kind for o in given.operators]
        self.alone_s = [
            [given.alone_s(o, end - begin) for begin, end in parts]
            for o, parts in zip(given.operators, self.parts, strict=True)
        ]
        self.missing: dict[Key, int] = {}
        self.opens: dict[Key, list[Key]] = {}
        for layer in range(layers):
            for place, parts in enumerate(self.parts):
                for n in range(len(parts)):
                    key = (layer, place, n)
                    needed = self._needed(key)
                    self.missing[key] = len(needed)
                    self.opens[key] = []
                    for other in needed:
                        self.opens[other].append(key)

    def _needed(self, key: Key) -> list[Key]:
        layer, place, n = key
        operators = self.given.operators
        operator, (begin, end) = operators[place], self.parts[place][n]
        # Dependencies by rows are what makes overlap legal: rows of the next operator may start while others are still
        # in this one.
        if operator.after:
            before = [(layer, p) for p, o in enumerate(operators) if o.name in operator.after]
        else:
            before = [(layer - 1, len(operators) - 1)] if layer else []
        return [
            (at, p, m)
            for at, p in before
            for m, (first, last) in enumerate(self.parts[p])
            # Overlapping rows, reaching back to a prompt's first row where a row attends to all before it.
            if first < end and last > operator.needs(begin, operators[p])
        ]

    def run(self, shares: Sequence[float], into: list[NanoBatch] | None = None) -> float:
        """Return when all is over under some shares, event by event; put every nano-batch into a list."""
        kinds, missing = self.kinds, dict(self.missing)
        ready: dict[str, list[Key]] = {kind: [] for kind in kinds}
        for key, count in missing.items():
            if not count:
                heapq.heappush(ready[kinds[key[1]]], key)
        order = sorted(ready, key=lambda kind: kind == COMPUTE)
        idle, ends = dict.fromkeys(order, True), []  # type: dict[str, bool], list[tuple[float, Key, float]]
        used = now_s = 0.0
        while True:
            # what computes goes last, and takes what the others leave of the device
            for kind in order:
                if not idle[kind] or not ready[kind]:
                    continue
                # The heap's least key is the earliest layer, operator and rows; nothing overtakes it within its kind,
                # so the order cannot starve.
                key = ready[kind][0]
                place, n = key[1:]
                share = min(shares[place], 1.0 - used) if kind == COMPUTE else shares[place]
                if share < LEAST_SHARE or used + share > 1.0 + CLOSE:
                    continue
                heapq.heappop(ready[kind])
                # Interference enters here alone: the rate P(r) that work of a kind reaches on a share r (the paper's
                # stage II).
                took_s = self.alone_s[place][n] / self.given.performance(kind, share)
                heapq.heappush(ends, (now_s + took_s, key, share))
                idle[kind] = False
                used += share
                if into is not None:
                    into.append(self._nano_batch(key, share, now_s))
            # Nothing runs and nothing could begin. With an idle device every ready nano-batch can begin, so all are
            # done.
            if not ends:
                return now_s
            now_s = ends[0][0]
            # All that end at one instant give their shares back before anything begins, or their order would decide
            # what fits.
            while ends and ends[0][0] <= now_s:
                _, key, share = heapq.heappop(ends)
                used -= share
                idle[kinds[key[1]]] = True
                for other in self.opens[key]:
                    missing[other] -= 1
                    if not missing[other]:
                        heapq.heappush(ready[kinds[other[1]]], other)

    def _nano_batch(self, key: Key, share: float, begin_s: float) -> NanoBatch:
        layer, place, n = key
        begin, end = self.parts[place][n]
        name = self.given.operators[place].name
        return NanoBatch(layer=layer, operator=name, begin=begin, end=end, share=share, begin_s=begin_s)


def _parts(given: Given, cuts: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """Return the nano-batches of each operator."""
    # The last reader of queries, keys and values is attention: what stands behind it can be cut otherwise.
    attention = max(n for n, o in enumerate(given.operators) if "kqv" in o.after)
    return [_cut(o, cuts[place > attention]) for place, o in enumerate(given.operators)]


def _cut(operator: Operator, parts: int) -> list[tuple[int, int]]:
    parts = min(parts, operator.rows)
    edges = [operator.first + operator.rows * n // parts for n in range(parts + 1)]
    return list(itertools.pairwise(edges))


@technique(
    name="nanoflow",
    family="serving",
    implements=("overlap",),
    summary="computes, reads and sends at the same time on different rows, by searched cuts and shares",
    paper="nanoflow",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the automatic search by the header, not read for this card",
            "code": "github.com/efeslab/Nanoflow: README.md, auto_search/new_search.py",
        },
        "deviations": (
            (
                "The authors solve two mixed-integer programmes over profiled kernels; this searches the same two "
                "things by descent over costs that the point states."
            ),
            (
                "A share belongs to an operator, in all layers and nano-batches; in the authors' second programme "
                "each nano-batch has its own, and shares that overlap may not add up to more than the device."
            ),
            (
                "A layer between others is tried with two around it; the authors' second programme has three "
                "layers."
            ),
            "The paper's other forms of collectives and its asynchronous batches are left out.",
        ),
        "constants": {
            "LEAST_SHARE": {"here": 0.05, "authors": "none"},
            "CLOSE": {"here": 1e-09, "authors": "none"},
        },
        "checked_by": (
            "tests/unit/test_overlapping.py::test_nanoflow_gains_and_stays_within_what_shares_cost",
            "tests/unit/test_overlapping.py::test_nothing_is_gained_where_a_share_reaches_no_more_than_itself",
        ),
    },
)
class NanoFlow:
    """Searches an order."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return the best order that was found, or whole batches one after another."""
        best: tuple[float, tuple[int, int], Sequence[float]] | None = None
        for cuts in CUTS:
            inner_s = _inner(given, cuts)
            # Descent finds a local optimum, so it starts from several places; the paper solves this exactly.
            for compute, others in BEGINNINGS:
                start = [compute if o.kind == COMPUTE else others for o in given.operators]
                found_s, shares = _descend(inner_s, start)
                if best is None or found_s < best[0]:
                    best = found_s, cuts, shares
        assert best is not None
        order: list[NanoBatch] = []
        whole_s = _Lines(given, best[1], given.layers).run(best[2], order)
        alone_s = given.layers * sum(given.alone_s(o, o.rows) for o in given.operators)
        # Judged by all layers: the search looked at a layer inside of others, without filling and emptying the
        # pipeline.
        return order if whole_s < alone_s else SequentialOperators().order(given)


def _descend(
    time_s: Callable[[Sequence[float]], float], start: Sequence[float]
) -> tuple[float, Sequence[float]]:
    """Try other shares of one operator after another until none helps; return the time and the shares."""
    shares, best_s, improved = list(start), time_s(start), True
    while improved:
        improved = False
        for place, share in itertools.product(range(len(shares)), SHARES):
            tried = [*shares[:place], share, *shares[place + 1 :]]
            tried_s = time_s(tried)
            # A real gain only: equal times that differ by rounding could make the descent go round for ever.
            if tried_s < best_s * (1 - CLOSE):
                best_s, shares, improved = tried_s, tried, True
    return best_s, shares


def _inner(given: Given, cuts: tuple[int, int]) -> Callable[[Sequence[float]], float]:
    """Return what gives the time that a layer adds between others, under some shares."""
    if given.layers < sum(TRIED_LAYERS):
        return _Lines(given, cuts, given.layers).run
    # The difference of two lengths is what further layers add, free of how the pipeline fills and empties. For a deep
    # model it is all that counts, and four layers are fast to play.
    few, all_ = _Lines(given, cuts, TRIED_LAYERS[0]), _Lines(given, cuts, sum(TRIED_LAYERS))
    return lambda shares: all_.run(shares) - few.run(shares)
