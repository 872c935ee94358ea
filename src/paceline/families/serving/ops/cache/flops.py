"""Counts what making keys and values again costs. Never inside the fences: torch's counter changes torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from paceline.families.reasoning.core.reasoner.network import Network
from paceline.families.serving.api.caching import Cache
from paceline.families.serving.ops.cache.reading import Moment, cached_model


@torch.inference_mode()
def rebuild_flops(
    network: Network, moments: Sequence[Moment], make: Callable[[], Cache], *, bits: int
) -> float:
    """Return operations of matrix products, for one text and each position kept, over all layers.

    Args:
        network: Whose cache it is.
        moments: What was kept, for each layer as often.
        make: The technique.
        bits: Of a kept number, for who quantises.
    """
    model = cached_model(network, bits)
    with FlopCounterMode(display=False) as counter:
        for moment in moments:
            make().keys_values(model, moment.layer, moment.kept)
    positions = sum(m.keys_BTF.shape[0] * m.keys_BTF.shape[1] for m in moments) / len(model.layers)
    return float(counter.get_total_flops() / positions)
