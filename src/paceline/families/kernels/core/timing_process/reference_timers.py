"""Timers of other tools inside a timing process, bound before a technique is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from paceline.worker.session import UnsupportedError


class OtherTimers:
    """PyTorch's timer, and Triton's where there is an accelerator for it."""

    def __init__(self, device: torch.device) -> None:
        self._timer = Timer
        self._do_bench: Any = None
        if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
            from triton.testing import do_bench  # noqa: PLC0415 - needs Triton

            self._do_bench = do_bench

    def seconds(
        self, timer: str, run: Callable[..., None], arguments: tuple[Tensor, ...], number: int
    ) -> float:
        """Return the seconds of one call: the mean of a block by PyTorch's timer, the median of one do_bench.

        Raises:
            UnsupportedError: do_bench has no accelerator here.
        """
        if timer == "do-bench":
            if self._do_bench is None:
                raise UnsupportedError("do_bench needs cuda and triton")
            return float(self._do_bench(lambda: run(*arguments), return_mode="median")) * 1e-3
        measurement = self._timer(
            stmt="run(*arguments)",
            globals={"run": run, "arguments": arguments},
            num_threads=torch.get_num_threads(),
        ).timeit(number)
        return float(measurement.mean)
