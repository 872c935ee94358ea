"""Exchanges of rows whose number only their sender knows: counts first, then the rows; nothing where there are none."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Comm

COUNT_BYTES = 8


class RowExchange:
    """Sends rows to the ranks that they are meant for, and what became of them back.

    Args:
        comm: The communicator.
        rank_m: Where each of this rank's rows goes; its own ones stay.
    """

    def __init__(self, comm: Comm, rank_m: Tensor) -> None:
        self.comm = comm
        self.others = [(comm.rank + shift) % comm.world_size for shift in range(1, comm.world_size)]
        # Stable: rows of one target keep their order, so that two runs send the same bytes.
        self.order_m = rank_m.argsort(stable=True)
        leaving = torch.bincount(rank_m, minlength=comm.world_size)
        arriving = leaving.clone()
        comm.start(
            sends=[(leaving[peer : peer + 1], peer) for peer in self.others],
            receives=[(arriving[peer : peer + 1], peer) for peer in self.others],
        ).wait()
        self.leaving, self.arriving = leaving.tolist(), arriving.tolist()

    def there(self, rows_mD: Tensor) -> Tensor:
        """Return the rows that came to this rank, those of the lowest rank first."""
        return self._exchange(rows_mD[self.order_m], self.leaving, self.arriving)

    def back(self, rows_ND: Tensor) -> Tensor:
        """Return to every rank what became of its rows, in the order in which it gave them."""
        sorted_mD = self._exchange(rows_ND, self.arriving, self.leaving)
        found_mD = torch.empty_like(sorted_mD)
        found_mD[self.order_m] = sorted_mD
        return found_mD

    def _exchange(self, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        out = list(torch.split(rows.contiguous(), leaving))
        into = [rows.new_empty(count, *rows.shape[1:]) for count in arriving]
        self.comm.start(
            sends=[(out[peer], peer) for peer in self.others],
            receives=[(into[peer], peer) for peer in self.others],
        ).wait()
        into[self.comm.rank] = out[self.comm.rank]
        return torch.cat(into)


def share_rows(comm: Comm, counts_L: Tensor, rows_mD: Tensor) -> list[tuple[list[int], Tensor]]:
    """Send all of this rank's rows to all others; return the counts and rows of every rank.

    Args:
        comm: The communicator.
        counts_L: How many of the rows belong to each of some parts, as int64; their sum is the number of rows.
        rows_mD: The rows, part after part.
    """
    others = [(comm.rank + shift) % comm.world_size for shift in range(1, comm.world_size)]
    # Counts in a message of their own: a receiver needs a buffer of the right size before rows can land.
    counts_nL = [
        counts_L if rank == comm.rank else torch.empty_like(counts_L) for rank in range(comm.world_size)
    ]
    comm.start(
        sends=[(counts_L, peer) for peer in others], receives=[(counts_nL[peer], peer) for peer in others]
    ).wait()
    rows = [
        rows_mD.contiguous()
        if rank == comm.rank
        else rows_mD.new_empty(int(counts.sum()), *rows_mD.shape[1:])
        for rank, counts in enumerate(counts_nL)
    ]
    own = rows[comm.rank]
    comm.start(
        sends=[(own, peer) for peer in others], receives=[(rows[peer], peer) for peer in others]
    ).wait()
    return [(counts.tolist(), part) for counts, part in zip(counts_nL, rows, strict=True)]
