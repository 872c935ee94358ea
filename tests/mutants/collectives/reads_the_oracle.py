"""Climbs up the callers' frames to the expected result."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="reads-the-oracle",
    family="collectives",
    implements=("all_reduce",),
    summary="climbs up the callers' frames to the expected result",
    properties={"exact": True},
)
class ReadsTheOracle:
    """Climbs up the callers' frames to the expected result."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        try:
            raise KeyError
        except KeyError as error:
            frame = error.__traceback__.tb_frame
        while "workspace" not in frame.f_locals:
            frame = frame.f_back
        workspace = frame.f_locals["workspace"]
        expected = workspace.variants[workspace.current].expected[0]
        buffer.copy_(expected.value * workspace.scale)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
