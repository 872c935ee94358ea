"""Capture of a call as a graph of the device's work, and its replay between two events.

CUDA and ROCm offer graphs through ``torch.cuda``; whatever has the same names can stand in for it. All of them are
bound when the object is made, before any technique is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.worker.fences.guard import ContractBreachError

WARM_CALLS = 3
"""Calls on the side stream before the capture: lazy initialisation must not be captured."""
MAX_REASON = 200


class Graphs:
    """Captures one call, and times its replays.

    Args:
        module: ``torch.cuda``, or a stand-in with the same names.
    """

    def __init__(self, module: Any) -> None:
        self._new_graph, self._capture = module.CUDAGraph, module.graph
        self._new_stream, self._on, self._current = module.Stream, module.stream, module.current_stream
        self._new_event, self._synchronize = module.Event, module.synchronize
        self._graph: Any = None

    def capture(self, call: Callable[[], None]) -> str | None:
        """Warm a call up on a side stream and capture it there; return why that is not possible, or None.

        Raises:
            ContractBreachError: The call left its contract meanwhile.
        """
        self._graph = None
        try:
            # Capture is not allowed on the default stream, and warm-up must run where the capture will.
            side = self._new_stream()
            side.wait_stream(self._current())
            with self._on(side):
                for _ in range(WARM_CALLS):
                    call()
            self._current().wait_stream(side)
            self._synchronize()
            graph = self._new_graph()
            with self._capture(graph, stream=side):
                call()
            self._synchronize()
        except ContractBreachError:
            raise
        except Exception as error:  # a technique may raise anything, and so may the end of a broken capture
            chain = _chain(error)
            # A breach during a capture surfaces as the capture's own error, and would pass as a mere impossibility.
            for link in chain:
                if isinstance(link, ContractBreachError):
                    raise link from error
            said = f"{type(chain[-1]).__name__}: {chain[-1]}".partition("\n")[0]
            return f"it cannot be captured: {said[:MAX_REASON]}"
        self._graph = graph
        return None

    def replay(self, count: int) -> int:
        """Replay the captured call some times, back to back; return the nanoseconds of the device."""
        assert self._graph is not None
        begin, end = self._new_event(enable_timing=True), self._new_event(enable_timing=True)
        # Looked up before the events, so that the loop holds launches only.
        replay = self._graph.replay
        begin.record()
        for _ in range(count):
            replay()
        end.record()
        self._synchronize()
        # Events tell milliseconds.
        return round(float(begin.elapsed_time(end)) * 1e6)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that it hides, the first of all at the end."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    return chain
