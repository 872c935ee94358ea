"""Operations of attention, counted by torch as they are dispatched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Size
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

_aten: Any = torch.ops.aten
WITH_WEIGHTS = frozenset({_aten.mm, _aten.addmm})
"""Products of a model with its weights; attention's have a batch of heads."""


def attention_flops(run: Callable[[], object]) -> float:
    """Return the operations of batched products and fused attention in a call; causal masks are not taken off."""
    with FlopCounterMode(display=False, custom_mapping=_FUSED_ON_CPU) as counter:
        run()
    found = counter.get_flop_counts().get("Global", {})
    return float(sum(count for operator, count in found.items() if operator not in WITH_WEIGHTS))


def _forward(query: Size, key: Size, value: Size, *others: Any, **named: Any) -> int:
    count: int = sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return count


def _backward(d_out: Size, query: Size, key: Size, value: Size, *others: Any, **named: Any) -> int:
    count: int = sdpa_backward_flop_count(d_out, query, key, value)  # type: ignore[no-untyped-call]  # torch leaves it without types
    return count


_FUSED_ON_CPU = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}
"""Those that torch's counter does not know."""
