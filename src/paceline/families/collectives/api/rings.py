"""Ring building blocks that several techniques share: over any members, on chunks of any sizes.

``reduce_scatter`` and ``all_gather`` are generators that yield once a step, after they have started the step's messages
and before they wait for them, so that a technique can compute meanwhile; ``finish`` runs one to its end. Bytes: every
chunk but one leaves each rank. ``visit`` sends rows one way around a ring whose answers go straight back.

Receives are posted one step ahead. A carrier may send only once the receiver has announced itself (Gloo does), and on a
link with a delay an announcement that comes late costs a whole delay in every step. Two rings that take turns on the
same links must not (``ahead=False``): the second would receive what the first has yet to be sent, since messages
between two ranks are matched in the order of their start. Nor may carriers that run operations in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from paceline.families.collectives.api.problem import Comm, Transfer


def reduce_scatter(
    comm: Comm,
    chunks: Sequence[Tensor],
    members: Sequence[int],
    place: int,
    scratch: Tensor,
    *,
    ahead: bool = True,
) -> Iterator[None]:
    """Leave the members' sum of chunk ``place`` in it; the other chunks hold partial sums afterwards.

    Args:
        comm: The communicator.
        chunks: One contiguous tensor for each member, in the order of members, flat.
        members: Ranks of the ring, in its order.
        place: This rank's index in ``members``.
        scratch: Flat, in the chunks' dtype: at least twice as many elements as the largest chunk.
        ahead: Post receives one step ahead.
    """
    size = len(members)
    after, before = members[(place + 1) % size], members[place - 1]
    half = scratch.numel() // 2
    halves = (scratch[:half], scratch[half:])

    def landing(step: int) -> Tensor:
        return halves[step % 2][: chunks[(place - step - 2) % size].numel()]

    # Carriers that run operations in the order of their start would block on a receive posted early (``Transport``).
    ahead = ahead and comm.posts_ahead
    coming = comm.start(receives=[(landing(0), before)]) if ahead and size > 1 else None
    for step in range(size - 1):
        # Step s sends chunk place − s − 1 and adds to chunk place − s − 2, so that step n − 2 ends with the own chunk.
        departing = [(chunks[(place - step - 1) % size], after)]
        if coming is None:
            transfers = [comm.start(sends=departing, receives=[(landing(step), before)])]
        else:
            arrival = coming
            # Before this step's send, into the other half of the scratch: the neighbour's next send finds it open.
            if step + 1 < size - 1:
                coming = comm.start(receives=[(landing(step + 1), before)])
            transfers = [arrival, comm.start(sends=departing)]
        yield
        transfers[0].wait()
        # While the own message may still be leaving: that is another chunk. The next step sends this one.
        chunks[(place - step - 2) % size].add_(landing(step))
        transfers[-1].wait()


def all_gather(
    comm: Comm, chunks: Sequence[Tensor], members: Sequence[int], place: int, *, ahead: bool = True
) -> Iterator[None]:
    """Give every member every chunk, in place; member i starts with chunk i. Arguments as in ``reduce_scatter``."""
    size = len(members)
    after, before = members[(place + 1) % size], members[place - 1]
    # Finished chunks land where they belong, so all receives can be posted at once without scratch.
    landings = [(chunks[(place - step - 1) % size], before) for step in range(size - 1)]
    ahead = ahead and comm.posts_ahead
    arrivals = [comm.start(receives=[landing]) for landing in landings] if ahead else []
    for step, landing in enumerate(landings):
        departing = [(chunks[(place - step) % size], after)]
        if ahead:
            transfers = [arrivals[step], comm.start(sends=departing)]
        else:
            transfers = [comm.start(sends=departing, receives=[landing])]
        yield
        for transfer in transfers:
            transfer.wait()


def finish(steps: Iterator[None]) -> None:
    """Run a generator of steps to its end without computing in between."""
    for _ in steps:
        pass


def visit(
    comm: Comm,
    own: Tensor,
    landing: Callable[[int], Tensor],
    answer: Callable[[int, Tensor], Tensor],
    replies: Sequence[Tensor],
    *,
    direct_last: bool = False,
) -> list[Transfer]:
    """Let this rank's rows visit all others, a hop a step; return the transfers that bring the answers back.

    Args:
        comm: The communicator.
        own: This rank's rows: contiguous, of one shape and dtype on all ranks.
        landing: Gives for a step where the rows of rank − step − 1 go, which arrive meanwhile.
        answer: Is called with a step and the rows of rank − step; gives what their owner gets. That of step 0 stays.
        replies: Where the answers to the own rows land, that of step s at index s − 1, as its transfer.
        direct_last: Rows skip their last hop: rank + n − 1 is rank − 1, to which the owner sends them itself.
    """
    rank, size = comm.rank, comm.world_size
    after, before = (rank + 1) % size, (rank - 1) % size
    held, returned = own, []
    for step in range(size):
        passed_on = None
        if step + 1 < size:
            arriving = landing(step)
            direct = direct_last and step == size - 2
            leaving, source = ((own, before), after) if direct else ((held, after), before)
            # Before the answer is computed, so that the rows travel meanwhile.
            passed_on = comm.start(sends=[leaving], receives=[(arriving, source)])
        found = answer(step, held)
        if step:
            sends, receives = [(found, (rank - step) % size)], [(replies[step - 1], (rank + step) % size)]
            # Rows first and answers second, on every rank: a pair of ranks that exchanges
            # both matches them in that order.
            returned.append(comm.start(sends=sends, receives=receives))
        if passed_on is not None:
            passed_on.wait()
            # Only after the wait: until then these rows are on their way, and the held ones are being sent.
            held = arriving
    return returned


def sent(sizes: Sequence[int], place: int) -> tuple[int, int]:
    """Return the elements and messages that a member sends in a reduce-scatter and an all-gather together.

    Args:
        sizes: Elements of each chunk, in the order of members.
        place: The member.
    """
    size = len(sizes)
    leaving = [s for i, s in enumerate(sizes) if i != place]
    leaving += [s for i, s in enumerate(sizes) if i != (place + 1) % size]
    return (sum(leaving), sum(1 for s in leaving if s)) if size > 1 else (0, 0)
