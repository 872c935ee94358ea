"""Timers of other tools inside a timing process, bound before a technique is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline.worker.ranks.session import UnsupportedError


class OtherTimers:
    """The timer that a point is timed with besides; PyTorch's, or Triton's where there is an accelerator for it.

    Args:
        device: Where calls run.
        wanted: ``torch-benchmark``, ``do-bench``, or another name, for which nothing is imported.
    """

    def __init__(self, device: torch.device, wanted: str) -> None:
        self._timer: Any = None
        self._do_bench: Any = None
        # Here and not above: importing it asks CUDA for its devices, and whoever did so cannot be forked any more.
        if wanted == "torch-benchmark":
            from torch.utils.benchmark import Timer  # noqa: PLC0415 - see above

            self._timer = Timer
        if wanted == "do-bench" and device.type == "cuda" and importlib.util.find_spec("triton") is not None:
            from triton.runtime import driver  # noqa: PLC0415 - needs Triton
            from triton.testing import do_bench  # noqa: PLC0415

            # Triton asks the system for its libraries when it is first used, by a process: not inside the fences.
            driver.active.get_current_device()
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
