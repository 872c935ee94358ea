"""Recursive doubling and halving: partners at distances 1, 2, 4, … exchange, so that log n steps are enough.

Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005,
sections 4.1 (all-gather), 4.4 (reduce-scatter) and 4.5 (all-reduce).

Algorithm (n ranks, p = 2^k the largest power of two ≤ n, so that n − p ranks are left over):
1. Fold: of the first 2(n − p) ranks every odd one hands its buffer to the even one before it, which speaks for both.
2. All-reduce: in step i the p speakers exchange their whole sums with the speaker whose number differs in bit i.
3. Halving (reduce-scatter): the farthest partners first, each keeping the half of its range that holds its own share.
4. Unfold: the speaker hands its pair's result back. With ``halving`` the all-reduce is step 3, then doubling ranges.
5. All-gather: ranges double (Bruck's rotated form when n is no power of two, without folding).

Cost per speaker: all-reduce k · S in k steps; with ``halving`` 2(p−1)/p · S in 2k steps; reduce-scatter (p−1)/p · S in
k steps. Folding adds two steps, S in from each folded rank and its result back. All-gather: (n−1)/n · S in ⌈log₂n⌉.
Memory: S of scratch for sums, 2S for the reduce-scatter; S for Bruck's rotation.

Difference from the paper: neighbours fold so that a speaker's pair of shares is contiguous; the reduce-scatter folds
for any n. Sums are formed in the same pairs on both sides, so all ranks end with the same bits.
Limits: whole buffers in every step (``halving`` off) suit short messages only.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds

Span = tuple[int, int]
"""First and one past the last speaker of a range."""


@technique(
    name="recursive-doubling",
    family="collectives",
    implements=("all_reduce", "all_gather", "reduce_scatter"),
    summary="partners at doubling distances exchange; logarithmically many steps",
    properties={"exact": True},
)
class RecursiveDoubling:
    """Logarithmically many steps; with ``halving`` the all-reduce takes twice as many and sends far less."""

    def __init__(self, problem: Problem, comm: Comm, *, halving: bool = False) -> None:
        self.problem = problem
        self.comm = comm
        self.halving = halving
        # Partners are found by flipping a bit, which needs a power of two of ranks: the
        # others are folded into neighbours.
        self.speakers = _speakers(problem.world_size)
        extra = problem.world_size - len(self.speakers)
        rank = problem.rank
        self.folded = rank < 2 * extra and rank % 2 == 1
        self.pair = (
            rank + 1 if rank < 2 * extra and not self.folded else None
        )  # the rank that a speaker speaks for
        self.speaker = 0 if self.folded else self.speakers.index(rank)
        self.offsets = _offsets(problem, self.speakers)
        gathers, rotates = problem.operation == "all_gather", extra > 0
        self.incoming = problem.empty(0 if gathers else problem.count)
        works = rotates if gathers else problem.operation == "reduce_scatter"
        self.work = problem.empty(problem.count if works else 0)

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        if self.problem.world_size == 1:
            buffers[-1].copy_(buffers[0])
        elif self.problem.operation == "all_reduce":
            self._all_reduce(*buffers)
        elif self.problem.operation == "reduce_scatter":
            self._reduce_scatter(*buffers)
        else:
            self._all_gather(*buffers)

    def _all_reduce(self, buffer: Tensor) -> None:
        if self.folded:
            # The speaker receives first and sends last (below), so these blocking calls pair up and cannot deadlock.
            self.comm.send(buffer, self.problem.rank - 1)
            self.comm.receive(buffer, self.problem.rank - 1)
            return
        if self.pair is not None:
            self.comm.receive(self.incoming, self.pair)
            buffer.add_(self.incoming)
        if self.halving:
            self._halve(buffer, buffer)
            self._double(buffer)
        else:
            for partner, _, _ in _doublings(self.speaker, len(self.speakers)):
                peer = self.speakers[partner]
                self.comm.exchange(buffer, peer, self.incoming, peer)
                # Both partners add the same two sums, and addition commutes: they agree bit by
                # bit, and so by induction do all.
                buffer.add_(self.incoming)
        if self.pair is not None:
            self.comm.send(buffer, self.pair)

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        if self.folded:
            self.comm.send(send, self.problem.rank - 1)
            self.comm.receive(receive, self.problem.rank - 1)
            return
        source = send
        if self.pair is not None:
            self.comm.receive(self.incoming, self.pair)
            # The pair's sum goes to ``work``, since the input of a reduce-scatter must not change.
            source = torch.add(send, self.incoming, out=self.work)
        self._halve(source, self.work)
        start, share = self.offsets[self.speaker], self.problem.share
        receive.copy_(self.work[start : start + share])
        if self.pair is not None:
            # Neighbours fold, so the share of a speaker's pair lies right behind its own and belongs to the same range.
            self.comm.send(self.work[start + share : start + 2 * share], self.pair)

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        rank, size, share = self.problem.rank, self.problem.world_size, self.problem.share
        # Aligned doubling gathers in place, but only for a power of two; Bruck's form takes any n and a rotated copy.
        if len(self.speakers) == size:
            receive.view(size, share)[rank].copy_(send)
            self._double(receive)
            return
        rotated = self.work.view(size, share)  # row i holds the share of rank + i
        rotated[0].copy_(send)
        have = 1
        while have < size:
            # The last step sends only what is missing.
            more = min(have, size - have)
            below, above = (rank - have) % size, (rank + have) % size
            self.comm.exchange(rotated[:more], below, rotated[have : have + more], above)
            have += more
        target = receive.view(size, share)
        target[rank:].copy_(rotated[: size - rank])
        target[:rank].copy_(rotated[size - rank :])

    def _halve(self, source: Tensor, work: Tensor) -> None:
        """Leave this speaker's range of the speakers' sum in ``work``; ``source`` holds its own contribution."""
        # Farthest partner first: what is kept stays one contiguous range, and ends as the speaker's own.
        for partner, kept, given in reversed(list(_doublings(self.speaker, len(self.speakers)))):
            keep, give = self._range(kept), self._range(given)
            incoming = self.incoming[: keep.stop - keep.start]
            self.comm.exchange(source[give], self.speakers[partner], incoming, self.speakers[partner])
            torch.add(source[keep], incoming, out=work[keep])
            # From now on the partial sums count, not the own contribution.
            source = work

    def _double(self, buffer: Tensor) -> None:
        """Spread each speaker's range of ``buffer`` to all speakers."""
        for partner, held, missing in _doublings(self.speaker, len(self.speakers)):
            peer = self.speakers[partner]
            self.comm.exchange(buffer[self._range(held)], peer, buffer[self._range(missing)], peer)

    def _range(self, span: Span) -> slice:
        return slice(self.offsets[span[0]], self.offsets[span[1]])


def _speakers(size: int) -> list[int]:
    """Return the ranks that speak, a power of two of them: the even ones of the folded pairs, then all others."""
    num_speakers = 1 << (size.bit_length() - 1)
    extra = size - num_speakers
    return [*range(0, 2 * extra, 2), *range(2 * extra, size)]


def _offsets(problem: Problem, speakers: list[int]) -> list[int]:
    """Return where each speaker's range begins, and the count: whole shares, or near-equal parts of an all-reduce."""
    if problem.operation == "all_reduce":
        return [0, *(stop for _, stop in chunk_bounds(problem.count, len(speakers)))]
    return [*(rank * problem.share for rank in speakers), problem.count]


def _doublings(speaker: int, num_speakers: int) -> Iterator[tuple[int, Span, Span]]:
    """Yield for distances 1, 2, 4, …: the partner, the aligned range around the speaker, the partner's range."""
    distance = 1
    while distance < num_speakers:
        own, other = speaker // distance * distance, (speaker ^ distance) // distance * distance
        yield speaker ^ distance, (own, own + distance), (other, other + distance)
        distance *= 2


def cost(problem: Problem, *, halving: bool) -> Cost:
    """Return the closed forms of the header, summed over the ranges that each rank really sends."""
    n, speakers = problem.world_size, _speakers(problem.world_size)
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    doublings = len(speakers).bit_length() - 1
    if problem.operation == "all_gather":
        sent, steps = (n - 1) * problem.share * problem.item_bytes, (n - 1).bit_length()
        return Cost(sent_bytes=sent, messages=steps, total_bytes=sent * n, steps=steps)
    offsets = _offsets(problem, speakers)
    extra = n - len(speakers)
    sends = [
        [problem.count] for _ in range(extra)
    ]  # elements of each message, rank by rank; the folded ranks first
    back = problem.count if problem.operation == "all_reduce" else problem.share
    for speaker in range(len(speakers)):
        # The first ``extra`` speakers are those that speak for a pair, to which they send its result.
        messages = [back] if speaker < extra else []
        for _, own, other in _doublings(speaker, len(speakers)):
            if problem.operation == "all_reduce" and not halving:
                messages.append(problem.count)
                continue
            messages.append(offsets[other[1]] - offsets[other[0]])
            if problem.operation == "all_reduce":
                messages.append(offsets[own[1]] - offsets[own[0]])
        sends.append([m for m in messages if m])
    phases = 2 if problem.operation == "all_reduce" and halving else 1
    return Cost(
        sent_bytes=max(sum(m) for m in sends) * problem.item_bytes,
        messages=max(len(m) for m in sends),
        total_bytes=sum(sum(m) for m in sends) * problem.item_bytes,
        steps=phases * doublings + (2 if extra else 0),
    )
