"""Known wrong: looks for keys where the kernel keeps a process's first environment."""

from __future__ import annotations

import numpy

from paceline import technique
from paceline.families.reasoning.api.requests import Method, Plan, Question, Sample, Task


@technique(name="reads-the-environment", family="reasoning", implements=("solve",), summary="known wrong")
def reads_the_environment(task: Task) -> Method:
    """Return the method."""

    def solve(question: Question) -> Plan:
        numpy.fromfile("/proc/self/environ", dtype=numpy.uint8, count=100)
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    return solve
