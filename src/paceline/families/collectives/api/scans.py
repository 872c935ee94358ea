"""A scan over ranks of a state that decays, in blocks that follow each other.

The state after a rank is what it leaves of the one before, and its own. Blocks are rows of the state, which do not
depend on each other: while a rank works on one, the next travels. The same scan from the last rank to the first carries
the gradients of states back, since P′ = α P + S gives dP = α dP′ and dS = dP′.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from paceline.families.collectives.api.problem import Comm, Transfer


class BlockScan:
    """One scan; its receives are posted when it is made.

    H heads with D rows each.

    Args:
        comm: The communicator.
        bounds: First row of each block and the one after its last.
        arriving: Where the blocks land, (H, rows of the block, D).
        before: The rank whose state arrives; None for the first.
        after: The rank that gets this one's; None for the last.
    """

    def __init__(
        self,
        comm: Comm,
        bounds: Sequence[tuple[int, int]],
        arriving: Sequence[Tensor],
        *,
        before: int | None,
        after: int | None,
    ) -> None:
        self.comm = comm
        self.bounds = bounds
        self.arriving = arriving
        self.after = after
        self.receives: list[Transfer] = []
        if before is not None:
            # All at once and before the own work: the carrier can take blocks in while this rank computes.
            self.receives = [comm.start(receives=[(block, before)]) for block in arriving]
        self.sends: list[Transfer] = []

    def run(self, own_HDD: Tensor, decay_HD: Tensor, prefix_HDD: Tensor) -> None:
        """Write the state that arrives into the prefix, zero for the first rank, and pass on what becomes of it.

        Args:
            own_HDD: What this rank adds to the state, (H, D, D).
            decay_HD: What is left of each row after this rank, (H, D).
            prefix_HDD: The state before this rank, (H, D, D); the first rank's must be zero beforehand.
        """
        for index, (start, stop) in enumerate(self.bounds):
            if self.receives:
                self.receives[index].wait()
                prefix_HDD[:, start:stop] = self.arriving[index]
            if self.after is not None:
                # A row of the state decays by its own factor (the key dimension), so a block needs
                # only its own rows of the decay.
                kept_HB = decay_HD[:, start:stop].unsqueeze(-1)
                block_HBD = prefix_HDD[:, start:stop] * kept_HB + own_HDD[:, start:stop]
                # A tensor of its own, which nobody changes before ``finish`` has waited for it.
                self.sends.append(self.comm.start(sends=[(block_HBD.contiguous(), self.after)]))

    def finish(self) -> None:
        """Wait until everything has left."""
        for transfer in self.sends:
            transfer.wait()
