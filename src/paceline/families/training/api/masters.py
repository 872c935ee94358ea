"""Mixed precision as state: parameters and gradients in two bytes, and of this rank's shares a master in float32.

A weight in bfloat16 has eight bits: most updates are smaller than its last place and would be lost. The optimiser
therefore steps masters, from which the narrow weights are rounded anew after every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from paceline.families.training.api.model import Transformer
from paceline.families.training.api.replica import Replica, Task, UnsupportedError

NARROW = torch.bfloat16
SINGLE, MIXED = "single", "mixed"


def narrow_parameters(task: Task, state: str) -> None:
    """Round a model's parameters in place where state is mixed; it computes in their dtype then.

    Rajbhandari et al., "ZeRO" (SC 2020), count such state as two bytes a weight and a gradient, and four a master.

    Raises:
        UnsupportedError: There is no such state.
    """
    if state not in (SINGLE, MIXED):
        raise UnsupportedError(f"state is {SINGLE} or {MIXED}, and not {state}")
    if state == SINGLE:
        return
    model = task.model
    if not isinstance(model, Transformer):
        raise UnsupportedError(
            f"state {MIXED} narrows the weights of the family's own model, whose sums stay wide"
        )
    # Autocast takes the weights' dtype from now on; logits and loss stay in float32 (Transformer.forward).
    model.narrow = NARROW
    for parameter in model.parameters():
        parameter.data = parameter.data.to(NARROW)


def widths(state: str) -> tuple[int, int]:
    """Return the bytes of one parameter, as many as of its gradient, and those of its master."""
    return (2, 4) if state == MIXED else (4, 0)


class Masters:
    """What the optimiser steps in the place of some shares: these themselves, or float32 masters of narrow ones.

    Args:
        replica: Keeps the masters, as a part of the optimiser's state.
        shares: With gradients of their own.

    Attributes:
        parameters: For the optimiser.
    """

    def __init__(self, replica: Replica, shares: Sequence[nn.Parameter]) -> None:
        replica.owned = list(shares)
        self.parameters = replica.owned
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        # Single precision: the shares are stepped themselves, and no second copy is held.
        if all(share.dtype == torch.float32 for share in shares):
            return
        wide = [share.detach().float() for share in shares]
        # Kept as the optimiser's state: checkpoints need them, for narrow weights do not determine their masters.
        kept = [
            replica.register_state(f"master {i}", tensor, kind="optimizer") for i, tensor in enumerate(wide)
        ]
        self.parameters = [nn.Parameter(tensor) for tensor in kept]
        self._pairs = list(zip(self.parameters, shares, strict=True))

    def step(self, optimizer: Optimizer) -> None:
        """Apply the shares' gradients; wide ones exist meanwhile alone."""
        for master, share in self._pairs:
            assert share.grad is not None
            # Widened here and dropped after the step: held, wide gradients would cost what narrow ones save.
            master.grad = share.grad.float()
        optimizer.step()
        for master, share in self._pairs:
            master.grad = None
            # Rounded from the master, not updated: small updates add up in the master until they show in bfloat16.
            share.detach().copy_(master.detach())
