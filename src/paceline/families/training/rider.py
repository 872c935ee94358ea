"""What rides along with any technique: how far ranks' own gradients lie apart, seen from outside in a few steps.

A rank notes its gradient's norm and a sketch of it, before the technique exchanges anything; when training has ended
the sketches are brought together. A sketch (Charikar, Chen, Farach-Colton 2002) adds each element with a random sign to
a random one of ``WIDTH`` places, the same for all ranks, so that cosines of sketches estimate cosines of gradients, to
about 1/√WIDTH.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.seat import Seat
from paceline.families.training.spec import DATA_PARALLEL
from paceline.worker.session import Block, Case, Session

APART = ("seen_norm_dispersion", "seen_gradient_cosine")
WIDTH = 4096
MOST_ELEMENTS = 1 << 22
"""Of larger models every so many elements are sketched; norms are those of all."""


class Rider:
    """Takes notes of one rank's gradients.

    Args:
        gradients: Shapes and device of what it will see.
        seed: Of signs and places, the same on all ranks.
    """

    def __init__(self, gradients: Sequence[Tensor], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.stride = math.ceil(sum(g.numel() for g in gradients) / MOST_ELEMENTS)
        count = sum(len(g.reshape(-1)[:: self.stride]) for g in gradients)
        device = gradients[0].device
        self.places = torch.randint(WIDTH, (count,), generator=generator).to(device)
        self.signs = (2.0 * torch.randint(2, (count,), generator=generator) - 1).to(device)
        self.notes: list[list[float]] = []

    def note(self, gradients: Sequence[Tensor] | None) -> None:
        """Note a step's gradients; None where this rank took no part in it."""
        if gradients is None:
            self.notes.append([math.nan] * (1 + WIDTH))
            return
        norm = math.sqrt(sum(float(torch.linalg.vector_norm(g, dtype=torch.float64)) ** 2 for g in gradients))
        sampled = torch.cat([g.detach().reshape(-1)[:: self.stride].float() for g in gradients])
        sketch = torch.zeros(WIDTH, device=sampled.device).index_add_(0, self.places, sampled * self.signs)
        length = float(torch.linalg.vector_norm(sketch))
        self.notes.append([norm, *(sketch / length if length else sketch).tolist()])


def make_rider(session: Session, block: Block, case: Case, seat: Seat) -> Rider | None:
    """Return what rides along; nothing where ranks' own gradients are not to be seen, or there are no others."""
    replica = seat.replica
    if block.params["op"] != DATA_PARALLEL or session.world_size == 1 or not replica.own_gradients:
        return None
    seed = session.draw_seed("sketches", block.block, case.label) % 2**62
    return Rider([p.detach() for p in replica.model.parameters()], seed)


def apart(session: Session, block: Block, rider: Rider | None, absent: dict[str, str]) -> dict[str, Any]:
    """Return the dispersion of norms and the mean cosine of two ranks' gradients in each noted step.

    Steps in which fewer than two ranks took part are left out. Why there are none is noted in ``absent``.
    """
    if block.params["op"] != DATA_PARALLEL:
        return {}
    found: dict[str, list[float]] = {name: [] for name in APART}
    everyone = session.control.gather(rider.notes) if rider else []
    for step in zip(*everyone, strict=True):
        seen = [note for note in step if math.isfinite(note[0])]
        if len(seen) < 2:
            continue
        norms = [note[0] for note in seen]
        sketches = torch.tensor([note[1:] for note in seen], dtype=torch.float64)
        products = (sketches @ sketches.T).tolist()
        cosine = fmean(products[i][j] for i, j in combinations(range(len(seen)), 2))
        dispersion = pstdev(norms) / fmean(norms) if any(norms) else 0.0
        for name, value in zip(APART, (dispersion, cosine), strict=True):
            found[name].append(value)
    if not found[APART[0]]:
        absent |= dict.fromkeys(APART, "ranks' own gradients are never there in whole, or there is one rank")
        return {}
    return {name: {"samples": values} for name, values in found.items()}
