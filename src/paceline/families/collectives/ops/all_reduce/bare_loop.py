"""Times the loop that anyone would write with ``torch.distributed`` alone, beside the harness's own timing.

Its ratio to the harness's time of the same collective says what the harness itself adds: fences, byte counting,
tracing, aligned starts. Only calibration asks for it.
"""

from __future__ import annotations

import time

import torch.distributed as dist

from paceline.families.collectives.core.candidate import Candidate
from paceline.worker.communication.transport import TorchTransport
from paceline.worker.timing.interleaved import Observation

_all_reduce = dist.all_reduce
_perf_ns, _monotonic_ns = time.perf_counter_ns, time.monotonic_ns

CALLS_BEFORE = 1
"""Untimed calls before the timed one, which make it a call inside a loop rather than one after a pause."""


class BareLoop:
    """Times the backend's all-reduce with nothing around it."""

    def __init__(self, candidate: Candidate) -> None:
        self.label = "bare-loop"
        self._session = candidate.session
        workspace = candidate.workspaces[0]
        self._buffer = workspace.buffers[0].clone()
        transport = candidate.session.transport
        assert isinstance(transport, TorchTransport), "the bare loop needs a process group"
        self._group = transport.group

    def observe(self) -> Observation:
        """Run the loop; return the seconds of its last call and its start on the clock of rank 0."""
        buffer, group, synchronize = self._buffer, self._group, self._session.device.synchronize
        buffer.fill_(1)
        for _ in range(CALLS_BEFORE):
            _all_reduce(buffer, group=group)
        synchronize()
        wall_start = _monotonic_ns()
        start = _perf_ns()
        _all_reduce(buffer, group=group)
        synchronize()
        stop = _perf_ns()
        self._session.control.barrier()
        return (stop - start) * 1e-9, wall_start + self._session.control.clock_offset_ns
