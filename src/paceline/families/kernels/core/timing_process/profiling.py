"""One call under ``torch.profiler``: the time of its kernels on an accelerator, of its operators on a CPU.

The profiler's modules are sealed before any technique is imported, and looked at before it starts and before it stops:
a technique that replaced a part of it could report what it likes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.autograd.profiler
import torch.autograd.profiler_util
import torch.profiler
from torch import Tensor
from torch.profiler import ProfilerActivity

from paceline.families.kernels.core.timing_process.tasks import num_tasks
from paceline.worker.fences import tensors
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.fences.seal import Seal
from paceline.worker.ranks.session import CaseError

MODULES = (
    torch.profiler,
    torch.profiler.profiler,
    torch.autograd.profiler,
    torch.autograd.profiler_util,
)
MOVING = ("_is_profiler_enabled", "_cupti_monitor_module", "_cupti_monitor_checked")
"""What the profiler itself changes in its modules."""


class CallProfiler:
    """Profiles calls one at a time; make it before a technique is imported."""

    def __init__(self, device: torch.device) -> None:
        self._on_cpu = device.type == "cpu"
        cpu, cuda = ProfilerActivity.CPU, ProfilerActivity.CUDA
        self._activities = [cpu] if self._on_cpu else [cpu, cuda]
        self._profile = torch.profiler.profile
        self._seal = Seal(MODULES, moving=MOVING, tensors=tensors)

    def seconds(self, guard: Guard, run: Callable[..., None], arguments: tuple[Tensor, ...]) -> float:
        """Return the sum of the times that the profiler attributes to one call.

        Raises:
            ContractBreachError: The call replaced a part of the profiler, or left its contract otherwise.
            CaseError: It left a thread running.
        """
        # Before it starts and before it stops: in between a replaced part could report what it likes.
        self._check()
        session = self._profile(activities=self._activities)
        session.start()
        try:
            tasks = num_tasks()
            guard.open()
            try:
                run(*arguments)
                if not self._on_cpu:
                    # Inside the session: kernels that are still running would be missing from it.
                    torch.accelerator.synchronize()
            finally:
                guard.close()
                left = num_tasks() - tasks
                self._check()
        finally:
            session.stop()
        guard.check()
        if left > 0 and self._on_cpu:
            raise CaseError("refused", "a call left a thread running")
        # The profiler tells microseconds.
        return self._sum(session) * 1e-6

    def _sum(self, session: torch.profiler.profile) -> float:
        """Return microseconds: of operators by themselves, or of what ran on the accelerator."""
        events = session.events()  # type: ignore[no-untyped-call]  # torch leaves it without types
        if self._on_cpu:
            return float(sum(event.self_cpu_time_total for event in events))
        return float(
            sum(
                # By themselves: a parent's total includes its children, which would count twice.
                event.self_device_time_total
                for event in events
                if event.device_type.name == "CUDA" and not event.is_user_annotation
            )
        )

    def _check(self) -> None:
        replaced = self._seal.restore()
        if replaced:
            raise ContractBreachError(f"it replaced {', '.join(replaced)}")
